"""Passes of optimizers that are wrong."""
