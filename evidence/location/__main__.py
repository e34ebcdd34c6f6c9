"""``python -m evidence.location CASE sound|wrong``: runs a cell of a shipped case, for ``memory`` to watch;
``python -m evidence.location lowered FOLDER EXPORTER [EVERY [TEXT]]``: runs the mistakes of ``lowerings.yaml`` of
an exporter, or some of them, keeps what is said of them in that folder, and prints it."""

from __future__ import annotations

import sys
from pathlib import Path

from evidence.location import lowered
from evidence.location.memory import run

if __name__ == "__main__":
    if sys.argv[1] == "lowered":
        folder, exporter, *rest = sys.argv[2:]
        for result in lowered.collect(Path(folder), exporter, int(rest[0]) if rest else 1, "".join(rest[1:])):
            print(f"{result.name}: {result.sound or result.said}")
    else:
        run(*sys.argv[1:])
