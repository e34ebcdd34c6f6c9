"""``pycuda.driver`` as recorded in pycuda.json. What ``_driver`` does not implement raises NotImplementedError."""

import device_memory as _memory
import recorded as _recorded

if _memory.faulty("nodriver"):
    raise ImportError("libcuda.so.1: cannot open shared object file: No such file or directory")

from pycuda import _driver

globals().update(_recorded.install([_driver], _recorded.load("pycuda.json"), []))
