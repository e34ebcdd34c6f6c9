"""Ties between what PyTorch computed and the tensors of a graph."""

import pytest

pytest.register_assert_rewrite("tests.front.align.support")
