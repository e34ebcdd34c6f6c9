"""Cases made of the samples that PyTorch tests its own operators with, read from the PyTorch that is installed."""
