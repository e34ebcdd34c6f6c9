"""Which pass of ONNX Runtime's optimizer is wrong: models of known and of planted defects."""
