"""PyTorch as reference, exported and converted models, and what is kept of them: all that a cell compares."""
