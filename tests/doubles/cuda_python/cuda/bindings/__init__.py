"""A double of NVIDIA's cuda-python: device memory is host memory. See tests/doubles/recorded.py.

It lies in a folder of its own, as PyTorch imports the real one where that is installed.
"""

import recorded as _recorded

DOUBLE = True
__version__ = _recorded.load("cuda_python.json")["version"]
