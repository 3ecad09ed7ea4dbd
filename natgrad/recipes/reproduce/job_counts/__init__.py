"""Figures 1 and 2 and Table 2: SGD and NG-SGD, with more and more jobs."""
