"""Networks that TensorRT's parser makes of models, read back layer by layer and computed without its kernels.

``parsed_network`` reads a network, ``evaluation`` evaluates it; the meaning of each kind of layer is a function in
``pointwise``, ``reshaping``, ``windows``, ``sampling`` and ``attending``.
"""
