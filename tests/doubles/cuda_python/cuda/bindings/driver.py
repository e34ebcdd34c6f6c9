"""``cuda.bindings.driver`` as recorded in cuda_python.json. What is not implemented raises NotImplementedError."""

import recorded as _recorded
from cuda.bindings import _driver

globals().update(_recorded.install([_driver], _recorded.load("cuda_python.json"), []))
