"""``python -m tests.kit.hosts COMMAND``: runs it as on a processor with AVX2 and nothing newer."""

from __future__ import annotations

import os
import subprocess
import sys

from conformance.results.records.processor import cpu
from tests.kit.hosts import HIDDEN, CannotHide, avx2_only


def main() -> int:
    """The command's exit status. Where nothing can be hidden, the command is not run and the reason is told."""
    there = cpu()["instructions"]
    if not {*HIDDEN} & {*there}:
        print(f"this processor has none of {', '.join(HIDDEN)}: what runs here anyway is the other kind of host")
        return 0
    try:
        hiding = avx2_only()
    except CannotHide as reason:
        print(f"NOT RUN as on a processor with AVX2 only: {reason}")
        return 0
    print(f"hidden: {', '.join(word for word in HIDDEN if word in there)}", flush=True)
    return subprocess.run(sys.argv[1:], env={**os.environ, **hiding}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
