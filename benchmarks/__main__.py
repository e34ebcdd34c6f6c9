"""Measures everything and writes ``docs/benchmarks.md``; with a group or ``--quick`` it prints and writes nothing.

The group ``mutants`` writes ``docs/mutants.md``; ``size``, ``endurance``, ``culprits`` and those of ``EVIDENCE``
write pages in ``docs/evidence``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks import (
    accusations,
    catalogue,
    coverage,
    culprits,
    dynamo,
    endurance,
    examples,
    findings,
    fuzz,
    gating,
    inner_loop,
    isolation,
    latency,
    location,
    mutants,
    passes,
    precision,
    reduction,
    repairs,
    size,
    whole_run,
)
from benchmarks.common import HEAD, Row, table
from conformance.records.environment import environment

GROUPS = {
    "whole_run": whole_run,
    "inner_loop": inner_loop,
    "examples": examples,
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
    "accusations": accusations,
    "location": location,
    "passes": passes,
    "reduction": reduction,
    "findings": findings,
    "repairs": repairs,
    "coverage": coverage,
    "catalogue": catalogue,
}
EVIDENCE = ("accusations", "location", "passes", "reduction", "findings", "repairs", "coverage")
"""Write a page in ``docs/evidence`` of what they found, which ``rows`` has just looked at."""
APART = {"latency", "mutants", "size", "endurance", "culprits", *EVIDENCE}
"""Take a quarter of an hour and more, and have pages of their own: ``docs/mutants.md``, and the others in
``docs/evidence``."""

TEXT = """# Benchmarks

Made by `tox run -e dev -- python -m benchmarks`. Both sides of a ratio are measured in one run and in turn; the
times are medians of the repeats, the ratio is the median of the repeats' own ratios with the least and the largest
behind it. The host is shared and noisy: look at the ratios, not at the times. A target that some
repeats meet and others do not is "unclear". A row without a name is about the one above it.

{table}

{where}

In whole runs every side exports a TorchScript model at two sizes, as the harness does to find one that is baked in,
and a dynamo model at one.

The opsets of one module do not share a capture: it is a small part of an export, so there is little to gain where
exports are cheap, and it takes an API that torch keeps to itself. A shared program is not left as it was either:
each export of it may add a symbol to its range constraints, which are written into the model (the LSTM's nodes
stay the same, its bytes do not).

How often a budget of time is decided wrongly stands in [evidence](evidence/latency.md), made by
`python -m benchmarks latency`.
How many planted defects are found, by the suite and by other tools, and whether the changed node is named, stands in
[mutants](mutants.md), made by
`python -m benchmarks mutants`.
How often the culprit of a planted defect is named stands in [culprits](evidence/culprits.md), made by
`python -m benchmarks culprits`.
What 100,000 cells take besides running them stands in [size](evidence/size.md), made by
`python -m benchmarks size`.
What a long run among hostile cells loses stands in [endurance](evidence/endurance.md), made by
`python -m benchmarks endurance`.
Which operator and line are named for a wrong export stands in [location](evidence/location.md), made by
`python -m benchmarks location`.
Which pass of an optimizer is named stands in [passes](evidence/passes.md), made by `python -m benchmarks passes`.
How small the model of a runtime's fault becomes stands in [reduction](evidence/reduction.md), made by
`python -m benchmarks reduction`.
How many findings planted causes come to stands in [findings](evidence/findings.md), made by
`python -m benchmarks findings`.
How many located defects have a fix stands in [repairs](evidence/repairs.md), made by `python -m benchmarks repairs`.
What the cells see of a module, and what asking costs, stands in [coverage](evidence/coverage.md), made by
`python -m benchmarks coverage`.
Whether the suite accuses modules that are sound stands in [false accusations](evidence/accusations.md), made by
`python -m benchmarks accusations`.

What each side does is said at the functions in `benchmarks/`. Some comparisons do not exist: Polygraphy does not
export, and `torch.onnx.testing.assert_onnx_program` takes models of the dynamo exporter only.
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few repeats and small sizes, to see that it works")
    parser.add_argument("group", nargs="*", choices=[[], *GROUPS], help=f"only these: {', '.join(GROUPS)}")
    options = parser.parse_args()
    rows: list[Row] = []
    print(HEAD, flush=True)
    for name in options.group or [one for one in GROUPS if one not in APART]:
        for row in GROUPS[name].rows(options.quick):
            print(row.line(), flush=True)
            rows.append(row)
    if not options.quick and not options.group:
        target = Path(__file__).parent.parent / "docs" / "benchmarks.md"
        target.write_text(TEXT.format(table=table(rows), where=_where()), encoding="utf-8")
    if not options.quick and "mutants" in options.group:
        mutants.write(mutants.study(options.quick), _where())
    if not options.quick and options.group == ["size"]:
        size.write(rows, _where())
    if not options.quick and options.group == ["endurance"]:
        endurance.write(rows, _where())
    if not options.quick and "culprits" in options.group:
        culprits.write(culprits.study(options.quick), _where())
    for name in EVIDENCE:
        if not options.quick and name in options.group:
            GROUPS[name].write(_where())


def _where() -> str:
    found = environment([])
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items() if version)
    import polygraphy

    return (
        f"Python {found['python']}, {found['cpu']['name']}, {found['cores']} cores. {versions}, "
        f"polygraphy {polygraphy.__version__}."
    )


if __name__ == "__main__":
    main()
