"""Find the operators that PyTorch's own tests have samples of."""

from __future__ import annotations

import functools
import random
import sys
import types
import unittest
from typing import Any

import numpy as np
import torch

MEMORY = (
    "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "resize_",
    "resize_as_",
)  # fmt: skip
"""Operators whose outputs are memory as it was found."""


@functools.cache
def operators() -> dict[str, Any]:
    """Return by name the entry of each operator that takes float32, as ``nn.functional.pad.reflect``: a variant
    stands behind a point. Raises ImportError where this PyTorch has no such table."""
    stand_in_for_expecttest()
    from torch.testing._internal.common_methods_invocations import op_db

    return {
        ".".join(filter(None, (info.name, info.variant_test_name))): info
        for info in op_db
        if torch.float32 in info.dtypes
    }


def stand_in_for_expecttest() -> None:
    """Let PyTorch's tests be imported without expecttest, which compares texts and has no part in their samples."""
    if "expecttest" not in sys.modules:
        sys.modules["expecttest"] = types.ModuleType("expecttest")
        vars(sys.modules["expecttest"])["TestCase"] = unittest.TestCase


def seed(number: int) -> None:
    """Set the seeds of all that samples and operators draw from."""
    torch.manual_seed(number)
    np.random.seed(number)
    random.seed(number)
