"""Read the graph of an ONNX model, cut parts out of it, and show what is inside of it."""
