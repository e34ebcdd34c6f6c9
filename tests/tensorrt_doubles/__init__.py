"""The doubles of TensorRT and pycuda: right answers, the refusals of the real ones, the faults that are planted."""

import pytest

pytest.register_assert_rewrite("tests.tensorrt_doubles.support")
