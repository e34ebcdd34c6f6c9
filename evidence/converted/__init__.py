"""Files of real converters, sound and with planted defects: is what is wrong found and named, and nothing else?"""

from evidence.converted.page import rows, write

__all__ = ["rows", "write"]
