"""Ties between what PyTorch computed and the tensors of a graph.

``modules`` has what each submodule returns in PyTorch, ``scopes`` which nodes of the graph are from which call of a
submodule, ``matching`` which tensor is its output, and ``parting`` where the two part.
"""
