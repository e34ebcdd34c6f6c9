"""ONNX's own tests of operators, which ship inside the package ``onnx``, as files that nobody here wrote.

    python -m evidence onnx_tests --recorded      recorded data alone
    python -m evidence onnx_tests                 and drawn values
    python -m evidence onnx_tests --every 10      of every tenth model
    python -m evidence onnx_tests --planted       wrong kernels, after a run with --recorded

A run that is broken off goes on where it was. ``--page`` writes ``docs/evidence/onnx-tests.md`` of what is there.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from evidence.onnx_tests.all_tests import write_tests
from evidence.onnx_tests.planted_kernels import chosen, plant
from evidence.onnx_tests.tally import summarize, write_page
from evidence.onnx_tests.try_tests import Way, read_results, run_tests

__all__ = ["main"]

FOLDER = Path("build/onnx-tests")


def main(words: Sequence[str]) -> int:
    """Run the tests and print what came of them. Return 1 where a runtime is accused that gives what was recorded."""
    parser = argparse.ArgumentParser(prog="python -m evidence onnx_tests", description=__doc__)
    parser.add_argument("--recorded", action="store_true", help="recorded data alone, nothing is drawn")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every Nth model, by name")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="models at a time (default: %(default)s)")
    parser.add_argument("--again", action="store_true", help="run all of it again")
    parser.add_argument("--planted", action="store_true", help="plant a wrong kernel for each of 60 operators")
    parser.add_argument("--page", action="store_true", help="run nothing, and write the page")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="models and results (default: %(default)s)")
    given = parser.parse_args(words)
    ways: dict[Way, Path] = {"recorded": given.folder / "recorded.jsonl", "drawn": given.folder / "drawn.jsonl"}
    planted = given.folder / "planted.json"
    if given.page:
        told = json.loads(planted.read_text(encoding="utf-8")) if planted.is_file() else []
        write_page({way: read_results(file) for way, file in ways.items()}, told)
        return 0
    tests = write_tests(given.folder / "models")
    if given.planted:
        trials = plant(chosen(tests, read_results(ways["recorded"])), given.folder / "planted", given.jobs)
        for one in trials:
            print(f"{'found' if one.found else 'MISSED'}  {one.operator}: {one.told()[:200]}")
        told = [{"operator": one.operator, "found": one.found, "said": one.told()} for one in trials]
        planted.write_text(json.dumps(told, indent=1), encoding="utf-8")
        print(f"{sum(one.found for one in trials)} of {len(trials)} wrong kernels found on drawn data alone")
        return 0
    way: Way = "recorded" if given.recorded else "drawn"
    if given.again:
        ways[way].unlink(missing_ok=True)
    results = run_tests(tests[:: given.every], way, ways[way], given.folder / "store", given.jobs)
    for line in summarize(results):
        print(line)
    return int(any(result.falsely_accused() for result in results))
