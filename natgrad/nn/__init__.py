"""Networks: the layers, builders and input transform of the paper."""
