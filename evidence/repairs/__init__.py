"""Located defects: for how many does ``conformance findings --fix`` know a change that mends them, and is any of its
changes wrong?"""

from evidence.repairs.page import rows, write

__all__ = ["rows", "write"]
