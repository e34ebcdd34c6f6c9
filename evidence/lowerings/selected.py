"""Measure what ``--changed-since`` selects of the catalogue after one lowering is edited, and how soon it is red."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ruamel.yaml import YAML

from benchmarks.common import Row
from benchmarks.observing import committed, pytest
from conformance.results.records.run_file import read_run
from evidence.lowerings.run import CATALOGUE, plants
from tests.plants.depends.lowerings import overlay
from tests.plants.location.lowerings import edited

EDITED = "core.aten_trunc"
"""A lowering whose mistake a first sample shows."""
SECONDS = 30
"""In which the verdict is wanted."""


def rows() -> Iterator[Row]:
    """Run a sample of each operator of the catalogue's first file with a copy of onnxscript, make a mistake in the
    copy, and run what ``--changed-since`` selects."""
    plant = next(one for one in plants() if one.at == EDITED)
    with tempfile.TemporaryDirectory() as name:
        project, site = Path(name) / "project", Path(name) / "site"
        (project / "cases").mkdir(parents=True)
        overlay(site)
        _write_one_of_each(CATALOGUE[0], project / "cases" / CATALOGUE[0].name)
        environment = committed(project, site)
        pytest(project, environment=environment)
        before = {record.id: record.status for record in read_run(project / "reports" / "latest")[1]}
        text = (site / plant.file).read_text(encoding="utf-8")
        (site / plant.file).write_text(edited(text, plant.function, plant.old, plant.new), encoding="utf-8")
        said = pytest(project, "--changed-since", "HEAD", "--collect-only", environment=environment)
        chosen = sum("::test_" in line for line in said.splitlines())
        start = time.perf_counter()
        pytest(project, "--changed-since", "HEAD", environment=environment)
        seconds = time.perf_counter() - start
        after = {record.id: record.status for record in read_run(project / "reports" / "latest")[1]}
    red = sum(after[one] == "failed" and before.get(one) == "passed" for one in after)
    yield Row(
        f"cells that `--changed-since` selects after `{plant.at}` is edited", f"{chosen / len(before):.1%}",
        f"{chosen} of {len(before)}",
    )  # fmt: skip
    yield Row(
        "seconds to their verdict", f"{seconds:.0f} s", f"{red} red that passed before",
        target=f"at most {SECONDS} s", met=seconds <= SECONDS and red > 0,
    )  # fmt: skip


def _write_one_of_each(file: Path, there: Path) -> None:
    yaml = YAML(typ="safe")
    (entry,) = yaml.load(file.read_text(encoding="utf-8")).values()
    entry |= {"samples": {"only": entry["samples"]["only"], "each": 1}, "specials": False, "export": {"dynamo": [20]}}
    yaml.dump({file.stem: entry}, there)
