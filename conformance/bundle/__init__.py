"""Cells where there is no PyTorch: written, and run."""
