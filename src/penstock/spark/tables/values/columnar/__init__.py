"""Arrow columns that compiled kernels fill, for every format of values."""
