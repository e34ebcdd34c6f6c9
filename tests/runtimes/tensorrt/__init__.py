"""The runtime ``tensorrt`` without a GPU: on doubles of TensorRT, pycuda and cuda-python, as recorded.

The double computes with ONNX Runtime, so that its numbers are right unless a fault is planted in it.
"""
