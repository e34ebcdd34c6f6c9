"""``python -m benchmarks.location CASE sound|wrong``: runs a cell of a shipped case, for ``memory`` to watch."""

from __future__ import annotations

import sys

from benchmarks.location.memory import run

if __name__ == "__main__":
    run(*sys.argv[1:])
