"""From PyTorch to ONNX, and keeping the models."""
