"""Measure everything, or the groups that are named, and write each as a section of ``docs/benchmarks.md``; with
``--quick`` print the rows and write nothing.

``latency``, ``size``, ``scale`` and ``growth`` run only by name: they take a quarter of an hour and more. ``size``
writes a page of its own. Subjects of ``scale`` can be measured alone: ``python -m benchmarks scale --only mlp-100``
prints their rows.
"""

from __future__ import annotations

import argparse

from benchmarks import (
    catalogue,
    converted,
    dynamo,
    examples,
    gating,
    growth,
    inner_loop,
    install,
    isolation,
    latency,
    observing,
    plugin,
    precision,
    published,
    red_run,
    scale,
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
    "converted": converted,
    "gating": gating,
    "latency": latency,
    "size": size,
    "scale": scale,
    "growth": growth,
    "observing": observing,
    "red_run": red_run,
    "source": source,
    "seconds": seconds,
}
APART = {"latency", "size", "scale", "growth"}
"""Those that run only by name."""
PUBLISHED = [name for name in GROUPS if name not in ("latency", "size")]
"""Those with a section in ``docs/benchmarks.md``."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few repeats and small sizes, to see that it works")
    names = f"only these: {', '.join(GROUPS)}"
    parser.add_argument("group", nargs="*", choices=[[], *GROUPS], metavar="GROUP", help=names)
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="of scale: this subject; repeatable"
    )
    options = parser.parse_args()
    if options.only:
        if options.group != ["scale"]:
            parser.error("--only is for subjects of scale: python -m benchmarks scale --only mlp-100")
        known = scale.names(options.quick)
        if unknown := [name for name in options.only if name not in known]:
            parser.error(f"--only {unknown[0]}: write one of {', '.join(known)}")
    plain = [name for name in GROUPS if name not in APART]
    print(HEAD, flush=True)
    for name in options.group or plain:
        rows: list[Row] = []
        measured = scale.rows(options.quick, options.only) if name == "scale" else GROUPS[name].rows(options.quick)
        for row in measured:
            print(row.line(), flush=True)
            rows.append(row)
        if options.quick or options.only:
            continue
        if name in PUBLISHED:
            published.write(name, GROUPS[name], rows, where(), PUBLISHED)
        elif name == "size":
            size.write(rows, where())


if __name__ == "__main__":
    main()
