"""What a long run among hostile cases loses: records, memory, descriptors, files, processes.

Three parts, each a module: ``stream`` is one worker's life of 100,000 cells, ``kills`` ends runs at random moments,
and ``sharing`` lets two runs work on one store.
"""

from evidence.endurance.page import rows, write

__all__ = ["rows", "write"]
