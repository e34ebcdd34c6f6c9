"""Large pages for what this process has in memory, so that a fork of it, which copies page tables, takes less."""

import ctypes
from pathlib import Path

LARGE = 2 << 20
"""Bytes of a large page on x86-64."""
COLLAPSE = 25
"""MADV_COLLAPSE of Linux 6.1: see madvise(2). Where it is unknown nothing changes."""


def join_pages() -> None:
    """Have the kernel put what was allocated until now into large pages, where it can.

    The tests of the diagnosis fork this process thousands of times, with all the runtimes in it: 449 MB in pages of
    4 KB are 115,000 entries to copy for each, and to let go of at its end.
    """
    advise = getattr(ctypes.CDLL(None), "madvise", None)
    maps = Path("/proc/self/maps")
    if advise is None or not maps.exists():
        return
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for line in maps.read_text(encoding="utf-8").splitlines():
        where, rights, *_, inode = line.split(maxsplit=5)[:5]
        if rights != "rw-p" or inode != "0":  # of a file, or of others
            continue
        start, end = (int(part, 16) for part in where.split("-"))
        start, end = -(-start // LARGE) * LARGE, end // LARGE * LARGE
        if start < end:
            advise(start, end - start, COLLAPSE)
