"""Ties between the operators that PyTorch calls and the tensors of a graph."""
