"""Limit the size of a case file and of its parts.

Every number is far above what a case needs (of the shipped files the largest has 8 KiB, 16 combinations and 800
cells), and low enough that one file cannot hold up the others: reading a file at all of its limits takes seconds.
The limits count what the file says and never time, so that all processes of a run collect the same cells.
"""

from __future__ import annotations

FILE_KIB = 128
"""The size of a case file in KiB."""

TOKENS = 20_000
"""The brackets, keys, values and other tokens of a case file. Reading some 10,000 of them takes a second."""

DEPTH = 32
"""How deeply brackets and indentation may be nested. Reading takes the product of length and depth."""

CASES = 1_000
"""Cases of a file, where each combination of ``vary`` is one."""

CELLS = 10_000
"""Cells of a file. pytest takes about a millisecond to collect one, and running one takes ten and more."""

ENTRIES = 64
"""Entries of those lists and mappings that are held against every cell: precisions, budgets, expected failures and
graphs."""

TENSORS = 4_096
"""Inputs of a case, their dims, conditions between dims, and values of an input that are written out. A decoder of 32
layers has 66 inputs, and where its exporter gave no names to dims, each of them has open dims of its own."""

NAME = 128
"""The bytes of a case's name, which is a part of the names of files, with those of its varied values."""

TEXT = 500
"""The characters of a short text that is parsed, such as a range or a tensor type."""

FORWARD = 4_000
"""The characters of an expression under ``forward``."""

SIZE = 2**31
"""The largest size of a dim. No tensor of a test is larger along one axis; a typo would fill the memory."""

DRAWN = 10_000
"""Shapes, value draws for each shape, and samples of a calibration that a case may ask for. ``--examples`` of the
command line is not limited."""

PROBLEMS = 50
"""The mistakes of one file that are told; suggestions are looked up for each."""
