"""Faults of ONNX Runtime made small: how many nodes are left, and does every script show the defect by itself?"""

from evidence.reduction.page import rows, write

__all__ = ["rows", "write"]
