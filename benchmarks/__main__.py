"""Measures everything, or the groups that are named, and writes each as a section of ``docs/benchmarks.md``; with
``--quick`` it prints and writes nothing.

The groups ``mutants``, ``size``, ``endurance``, ``culprits`` and those of ``EVIDENCE`` write pages in
``docs/evidence``. Those of ``COMPARING`` run only by name and alone, and have options of their own:
``python -m benchmarks golden --help``, and the same of ``defects``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence

from benchmarks import (
    accusations,
    catalogue,
    cluster,
    coverage,
    culprits,
    defects,
    depends,
    dynamo,
    endurance,
    examples,
    findings,
    fuzz,
    gating,
    golden,
    inner_loop,
    install,
    isolation,
    latency,
    location,
    model_types,
    mutants,
    neighbours,
    onnx_tests,
    passes,
    plugin,
    precision,
    published,
    reach,
    red_run,
    reduction,
    repairs,
    seconds,
    size,
    source,
    tensorrt_rtx,
    versions,
    whole_run,
)
from benchmarks.common import HEAD, Row, where
from benchmarks.culprits import own_code
from benchmarks.depends import cost

GROUPS = {
    "whole_run": whole_run,
    "install": install,
    "inner_loop": inner_loop,
    "plugin": plugin,
    "examples": examples,
    "catalogue": catalogue,
    "dynamo": dynamo,
    "isolation": isolation,
    "precision": precision,
    "gating": gating,
    "latency": latency,
    "mutants": mutants,
    "fuzz": fuzz,
    "size": size,
    "endurance": endurance,
    "culprits": culprits,
    "doors": own_code,
    "accusations": accusations,
    "location": location,
    "passes": passes,
    "reduction": reduction,
    "findings": findings,
    "repairs": repairs,
    "coverage": coverage,
    "reach": reach,
    "model_types": model_types,
    "versions": versions,
    "tensorrt_rtx": tensorrt_rtx,
    "cluster": cluster,
    "neighbours": neighbours,
    "depends": depends,
    "observing": cost,
    "red_run": red_run,
    "source": source,
    "seconds": seconds,
}
EVIDENCE = (
    "doors",
    "accusations",
    "location",
    "passes",
    "reduction",
    "findings",
    "repairs",
    "coverage",
    "reach",
    "model_types",
    "versions",
    "tensorrt_rtx",
    "cluster",
    "neighbours",
    "depends",
)
"""Write a page in ``docs/evidence`` of what they found, which ``rows`` has just looked at."""
APART = {"latency", "mutants", "size", "endurance", "culprits", *EVIDENCE}
"""Take a quarter of an hour and more, and have pages of their own in ``docs/evidence``."""
COMPARING: Mapping[str, Callable[[Sequence[str]], int]] = {
    "golden": golden.main,
    "defects": defects.main,
    "onnx_tests": onnx_tests.main,
}
"""Compare what the suite says with a file, or with ONNX's own tests, or plant defects in it for its tests to find;
give an exit code."""


def main() -> None:
    if sys.argv[1:2] and sys.argv[1] in COMPARING:
        sys.exit(COMPARING[sys.argv[1]](sys.argv[2:]))
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few repeats and small sizes, to see that it works")
    parser.add_argument("group", nargs="*", choices=[[], *GROUPS], help=f"only these: {', '.join(GROUPS)}")
    options = parser.parse_args()
    rows: list[Row] = []
    plain = [name for name in GROUPS if name not in APART]
    print(HEAD, flush=True)
    for name in options.group or plain:
        own: list[Row] = []
        for row in GROUPS[name].rows(options.quick):
            print(row.line(), flush=True)
            own.append(row)
        if name in plain and not options.quick:
            published.write(name, GROUPS[name], own, where(), plain)
        rows += own
    if not options.quick and "mutants" in options.group:
        mutants.write(mutants.study(options.quick), where())
    if not options.quick and options.group == ["size"]:
        size.write(rows, where())
    if not options.quick and options.group == ["endurance"]:
        endurance.write(rows, where())
    if not options.quick and "culprits" in options.group:
        culprits.write(culprits.study(options.quick), where())
    for name in EVIDENCE:
        if not options.quick and name in options.group:
            GROUPS[name].write(where())


if __name__ == "__main__":
    main()
