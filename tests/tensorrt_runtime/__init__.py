"""The runtime ``tensorrt`` without a GPU: on doubles of TensorRT and pycuda that have the recorded surface of both.

The double computes with ONNX Runtime, so that its numbers are right unless a fault is planted in it.
"""
