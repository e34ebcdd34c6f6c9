"""Operators of PyTorch written in operators of ONNX, from which files for cases are made (``repairs/written.py``).

A function here is written once for both exporters. Its first parameter ``op`` puts nodes into the graph, one class in
``torchscript.py`` and one in ``dynamo.py``; the others are called as in the operator's schema. What a function does
not handle it may leave to the trial that follows. Nothing here imports the package: the text is pasted beside a case.
"""
