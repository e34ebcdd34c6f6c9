"""Measures everything and writes ``docs/benchmarks.md``; ``--quick`` prints a small version and writes nothing."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks import dynamo, examples, isolation, whole_run
from benchmarks.common import HEAD
from conformance.environment import environment

TEXT = """# Benchmarks

Made by `tox run -e dev -- python -m benchmarks`. Both sides of a ratio are measured in one run and
in turn, medians of three or more repeats; the host is shared and noisy, so look at the ratios, not at the times.

{table}

{where}

What each side does is said at the functions in `benchmarks/`.
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few repeats, small sizes, nothing is written")
    quick = parser.parse_args().quick
    lines = [HEAD]
    for group in (whole_run, examples, dynamo, isolation):
        for row in group.rows(quick):
            print(row.line(), flush=True)
            lines.append(row.line())
    if not quick:
        found = environment([])
        versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items() if version)
        where = f"Python {found['python']}, {found['cpu']['name']}, {found['cores']} cores. {versions}."
        target = Path(__file__).parent.parent / "docs" / "benchmarks.md"
        target.write_text(TEXT.format(table="\n".join(lines), where=where), encoding="utf-8")


if __name__ == "__main__":
    main()
