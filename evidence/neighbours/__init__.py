"""Cases that change their process in many ways: does one of them change the verdict of another cell?"""

from evidence.neighbours.page import rows, write

__all__ = ["rows", "write"]
