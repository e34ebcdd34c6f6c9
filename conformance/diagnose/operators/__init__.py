"""The first operator at which PyTorch and a graph part, by exporting again with instruments.

``dynamo`` and ``torchscript`` have the program that the exporter captured, as ``captured_program`` says it, and
which tensors of the graph its values are. ``forced`` computes each operator in PyTorch on what the graph itself
computed of the operators before (``tensor_values``), so that only an operator that was translated wrongly parts.
``first_operator`` asks one after the other, and what a capture froze.

What is private to torch is used through ``instruments`` only; where it is missing there is no answer but why.
"""
