"""Measure everything, or the groups that are named, and write each as a section of ``docs/benchmarks.md``; with
``--quick`` print the rows and write nothing.

``latency`` and ``size`` run only by name: they take a quarter of an hour and more. ``size`` writes a page of its own.
"""

from __future__ import annotations

import argparse

from benchmarks import (
    catalogue,
    dynamo,
    examples,
    gating,
    inner_loop,
    install,
    isolation,
    latency,
    observing,
    plugin,
    precision,
    published,
    red_run,
    seconds,
    size,
    source,
    whole_run,
)
from benchmarks.common import HEAD, Row, where

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
    "size": size,
    "observing": observing,
    "red_run": red_run,
    "source": source,
    "seconds": seconds,
}
APART = {"latency", "size"}
"""Those that run only by name."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few repeats and small sizes, to see that it works")
    names = f"only these: {', '.join(GROUPS)}"
    parser.add_argument("group", nargs="*", choices=[[], *GROUPS], metavar="GROUP", help=names)
    options = parser.parse_args()
    plain = [name for name in GROUPS if name not in APART]
    print(HEAD, flush=True)
    for name in options.group or plain:
        rows: list[Row] = []
        for row in GROUPS[name].rows(options.quick):
            print(row.line(), flush=True)
            rows.append(row)
        if options.quick:
            continue
        if name in plain:
            published.write(name, GROUPS[name], rows, where(), plain)
        elif name == "size":
            size.write(rows, where())


if __name__ == "__main__":
    main()
