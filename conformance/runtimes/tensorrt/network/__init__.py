"""What TensorRT's parser makes of a model, read back layer by layer and computed without TensorRT's kernels.

``parsed_network`` reads a network, ``evaluation`` evaluates it; the meaning of each kind of layer is a function in
``pointwise``, ``reshaping``, ``windows``, ``sampling`` and ``attending``.
"""
