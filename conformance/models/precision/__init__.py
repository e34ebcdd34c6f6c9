"""fp16 and int8: made once as an ONNX model from the exported fp32 model.

``calibration`` gathers the inputs that ``ranges`` are measured on, ``convert`` makes a model with ``fp16`` or
``int8`` and finds out what is wrong with it, for int8 by the ``int8_rules`` of TensorRT. What the precision costs,
and whether a runtime computes the converted model right, is compared elsewhere (``judge.verify_converted``,
``compare.noise``); ``diagnose.nodes.loss`` says at which stage accuracy was lost, ``sensitivity`` at which nodes.
"""
