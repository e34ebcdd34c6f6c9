"""Ties between what PyTorch computed and the tensors of a graph.

``modules`` has what each submodule returns in PyTorch, ``nodes`` which tensor of the graph that is, ``parting`` where
the two part.
"""
