"""``python -m evidence.scale.verdict ARGUMENT...`` is ``conformance check ARGUMENT...`` that gives verdicts alone: it
does not look for who is at fault, which takes longer than all else where a file is large."""

from __future__ import annotations

import functools
import sys

from conformance.cells import runner
from conformance.front import cli

if __name__ == "__main__":
    runner.Runner = functools.partial(runner.Runner, explaining=False)  # type: ignore[misc,assignment]  # read late
    sys.exit(cli.main(["check", *sys.argv[1:]]))
