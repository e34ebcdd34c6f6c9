"""How far cases reach: which of PyTorch's own samples are cases without Python, how long a first verdict takes,
whether ``conformance.check`` says what the suite says, and what the dependencies of a case in a large folder take."""

from evidence.reach.page import rows, write

__all__ = ["rows", "write"]
