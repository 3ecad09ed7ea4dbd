"""Past the paper: more jobs at no loss, by an outer optimizer and what jobs hand over."""
