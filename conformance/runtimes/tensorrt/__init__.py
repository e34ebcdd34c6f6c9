"""TensorRT: engines built from the same ONNX models, run on this host's GPU.

It needs tensorrt, and pycuda or cuda-python, but never torch.

Only names that TensorRT 8.6, 10 and 11 share are used; names that a version lacks are looked up with ``getattr``.
"""

from conformance.runtimes.tensorrt.absence import absence
from conformance.runtimes.tensorrt.build_options import Build, BuildOptions, Shapes
from conformance.runtimes.tensorrt.engine_session import TensorRTSession, open_model

__all__ = ["Build", "BuildOptions", "Shapes", "TensorRTSession", "absence", "open_model"]
