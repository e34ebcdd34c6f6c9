"""Make the pages that are named, each a page of ``docs/evidence``; with ``--quick`` print the rows and write nothing.

``golden``, ``defects``, ``onnx_tests``, ``surprises`` and ``numbers`` are called alone and have options of their own:
``python -m evidence golden --help``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence

from benchmarks.common import HEAD, where
from evidence import (
    accusations,
    cluster,
    converted,
    coverage,
    culprits,
    defects,
    depends,
    endurance,
    findings,
    golden,
    location,
    lowerings,
    model_types,
    mutants,
    neighbours,
    numbers,
    onnx_tests,
    operators,
    parsed_networks,
    passes,
    reach,
    reduction,
    repairs,
    scale,
    surprises,
    tensorrt_rtx,
    versions,
    wrong_answers,
)
from evidence.culprits import own_code

PAGES = {
    "culprits": culprits,
    "doors": own_code,
    "accusations": accusations,
    "converted": converted,
    "location": location,
    "lowerings": lowerings,
    "passes": passes,
    "reduction": reduction,
    "findings": findings,
    "repairs": repairs,
    "mutants": mutants,
    "coverage": coverage,
    "operators": operators,
    "wrong_answers": wrong_answers,
    "reach": reach,
    "model_types": model_types,
    "versions": versions,
    "tensorrt_rtx": tensorrt_rtx,
    "parsed_networks": parsed_networks,
    "cluster": cluster,
    "endurance": endurance,
    "neighbours": neighbours,
    "depends": depends,
    "scale": scale,
}
"""Modules whose ``rows(quick)`` measures and whose ``write(where)`` writes the page of what was measured."""
COMMANDS: Mapping[str, Callable[[Sequence[str]], int]] = {
    "golden": golden.main,
    "defects": defects.main,
    "onnx_tests": onnx_tests.main,
    "surprises": surprises.main,
    "numbers": numbers.main,
}
"""Compare what the suite says with a file, plant mistakes in the package for its tests to find, run ONNX's own tests,
run the scripts of ``findings``, compare all values of operators with what is right; give an exit code."""


def main() -> None:
    if sys.argv[1:2] and sys.argv[1] in COMMANDS:
        sys.exit(COMMANDS[sys.argv[1]](sys.argv[2:]))
    parser = argparse.ArgumentParser(prog="python -m evidence", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few plants and small sizes, to see that it works")
    names = ", ".join((*PAGES, *COMMANDS))
    parser.add_argument("page", nargs="+", choices=PAGES, metavar="NAME", help=f"one of {names}")
    options = parser.parse_args()
    print(HEAD, flush=True)
    for name in options.page:
        for row in PAGES[name].rows(options.quick):
            print(row.line(), flush=True)
        if not options.quick:
            PAGES[name].write(where())


if __name__ == "__main__":
    main()
