"""Bundles of cells: written with PyTorch, run where there is none."""
