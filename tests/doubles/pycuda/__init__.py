"""A double of pycuda: device memory is host memory. See tests/doubles/recorded.py."""

VERSION = (2026, 1)
VERSION_STATUS = ""
VERSION_TEXT = "2026.1"
DOUBLE = True
