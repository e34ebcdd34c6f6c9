"""A bundle that is run again where there is no PyTorch."""
