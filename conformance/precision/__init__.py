"""fp16 and int8: made once as ONNX models, from the exported fp32 one, and judged twice.

``calibration`` gathers the inputs that ranges are measured on, ``convert`` makes a model with ``fp16`` or ``int8``
and finds out what is wrong with it, ``judge`` compares: what the precision costs, and whether a runtime is right.
``loss`` says at which stage the accuracy went, ``sensitivity`` at which nodes.
"""
