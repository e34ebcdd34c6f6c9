"""PyTorch against ONNX, submodule by submodule: the first place where they part.

``modules`` has what each submodule returns in PyTorch, ``nodes`` which tensor of the graph that is, ``compare`` where
the two part, ``command`` prepares a case for it and ``text`` says what was found.
"""
