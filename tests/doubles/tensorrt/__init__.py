"""A double of TensorRT: no GPU, the answers are ONNX Runtime's on the CPU.

It offers what the recording of the real binding says, no more; what ``_objects``, ``_building`` and ``_running``
do not implement raises NotImplementedError. Environment variables configure it, so that it is the same in a worker
process:

* ``CONFORMANCE_DOUBLE_TENSORRT``: the version, ``8.6`` (default), ``10.12`` or ``11.0``, also with a patch number;
* ``CONFORMANCE_DOUBLE_UNSUPPORTED``: operators that the parser refuses, parted by commas;
* ``CONFORMANCE_DOUBLE_FAULT``: planted faults, parted by commas. ``wrong``: the last output's first value is 10 %
  off; ``rows``: the second row of each output; ``rebuild``: every build of a process is off by another 0.1 %;
  ``crash`` and ``hang`` when executing, as ``crash:Sin`` only engines that have the operator; ``build``: no engine
  comes out; ``olddriver``: the driver is older than TensorRT's CUDA; of pycuda ``nogpu``, ``nodriver``, ``oom``;
* ``CONFORMANCE_DOUBLE_ILLEGAL``: operators whose kernels use memory that is not theirs, after which CUDA is lost.
"""

import recorded as _recorded

from tensorrt import _building, _common, _objects, _running

DOUBLE = True
__version__ = _common.RECORDING["version"]

globals().update(_recorded.install([_objects, _building, _running], _common.RECORDING, _common.OTHERS))
