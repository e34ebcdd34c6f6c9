"""Compare unary operators of runtimes with correctly rounded results, on all values of a type.

    python -m evidence numbers                                     float16, bfloat16, and of float32 a sample
    python -m evidence numbers --all --minutes 60                  all of float32, as far as the time goes
    python -m evidence numbers --operators Exp Log --formats float32 --runtimes onnxruntime torch --all

Parts are kept in ``reports/numbers``, so that a run that was cut off goes on. The page also has the rows of
``docs/evidence/numbers.json`` that were not measured now. With ``--quick`` few values are looked at and nothing is
written. Gives 3 where the host has too little memory.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.common import where
from evidence.numbers import kernels, page
from evidence.numbers.functions import FUNCTIONS
from evidence.numbers.right import FORMATS, off_by
from evidence.numbers.run import ALL, SAMPLE, Plan, measure

QUICK = {"functions": ("Exp", "Gelu"), "most": 2**18}


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m evidence numbers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few operators and values, to see that it works")
    for name, known in (("operators", FUNCTIONS), ("formats", FORMATS), ("runtimes", kernels.runtimes())):
        parser.add_argument(f"--{name}", nargs="+", choices=known, default=[*known], metavar="NAME")
    parser.add_argument("--all", action="store_true", help="all values of float32, in place of a sample")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no part later")
    options = parser.parse_args(arguments)
    until = time.monotonic() + 60 * options.minutes
    values = ALL if options.all else SAMPLE
    plan = Plan(options.operators, options.formats, options.runtimes, values, until=until)
    rows = []
    try:
        with TemporaryDirectory() as folder:
            for row in measure(replace(plan, kept=Path(folder), **QUICK) if options.quick else plan):
                print(page.line(row), flush=True)
                rows.append(row)
    except MemoryError as error:
        print(f"too little memory: {error}")
        return 3
    if not options.quick:
        page.write(page.updated(page.saved(), rows), max(map(off_by, FUNCTIONS.values())), where())
    return 0
