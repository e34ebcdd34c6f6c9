"""What gating costs: selecting by change among 1,000 cases, pages of many records, and what a killed run keeps."""

from __future__ import annotations

import copy
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, Row, seconds_of
from conformance.case.plan.catalogue import Selection, read_suite
from conformance.models.kept.changed import changed_since
from conformance.results.records.record import Record
from conformance.results.records.record_types import Header
from conformance.results.records.run_file import read_lines, read_run
from conformance.results.report.html import page
from tests.kit import browser

CASE = """
op{n}:
  about: one of many
  forward: torch.asinh(x)
  inputs: {{x: "float32[batch, 5]"}}
  dims: {{batch: 1..4}}
  runtimes: onnxruntime
  export: {{torchscript: {{opsets: [17], symbolics: {{"aten::asinh": symbolics.op{n}}}}}, dynamo: [20]}}
"""
SYMBOLIC = "\ndef op{n}(g, x):\n    return g.op('Asinh', x)\n"
KILLED = """
defaults: {{runtimes: onnxruntime, export: {{torchscript: [13, 17, 18]}}, dims: {{batch: 1..4}}}}
{cases}
"""
PLAIN = """
op{n}:
  about: one of many
  forward: torch.sin(x) + {n}
  inputs: {{x: "float32[batch, 5]"}}
"""


def rows(quick: bool) -> Iterator[Row]:
    yield _selection(50 if quick else 1000)
    yield _killed(2 if quick else 10)
    yield from _pages([100] if quick else [100, 1000, 10_000])


def _selection(count: int) -> Row:
    """--changed-since after one symbolic was edited, in files of 50 cases each; reading the case files apart."""
    with tempfile.TemporaryDirectory() as name:
        folder, cases = Path(name), Path(name) / "cases"
        for first in range(0, count, 50):
            place = cases / f"topic{first // 50}"
            place.mkdir(parents=True)
            numbers = range(first, min(first + 50, count))
            (place / "symbolics.py").write_text("".join(SYMBOLIC.format(n=n) for n in numbers))
            (place / "cases.yaml").write_text("".join(CASE.format(n=n) for n in numbers))
        git = ["git", "-c", "user.name=Someone", "-c", "user.email=someone@example.org", "-C", name]
        for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "as it was"]):
            subprocess.run([*git, *arguments], check=True)
        edited = cases / "topic0" / "symbolics.py"
        edited.write_text(
            edited.read_text().replace("def op7(g, x):\n    return", "def op7(g, x):\n    x = x\n    return")
        )
        selection = Selection()
        found: list[Any] = []
        reading = seconds_of(lambda: found.append(read_suite([cases], selection)[0]))
        cells = found[0]
        selecting = seconds_of(lambda: found.append(changed_since("HEAD", [cases], cells, selection)))
        chosen = found[1].reasons
        assert {one.split("[")[1].split("-")[0] for one in chosen} == {"op7"}, chosen
    assert folder
    return Row(
        f"selecting by change: one symbolic edited among {count:,} cases",
        f"{selecting:.1f} s for {len(chosen)} of {len(cells):,} cells",
        "reading the case files", f"{selecting / reading:.1f} ×",
    )  # fmt: skip


def _killed(times: int) -> Row:
    """A run that is killed at a random moment has a record of every cell that pytest had told of."""
    told = kept = 0
    rng = random.Random(0)
    for _ in range(times):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "cases").mkdir()
            text = KILLED.format(cases="".join(PLAIN.format(n=n) for n in range(60)))
            (folder / "cases" / "many.yaml").write_text(text)
            with (folder / "log").open("w") as log:
                command = [
                    sys.executable,
                    "-u",
                    "-m",
                    "pytest",
                    "--pyargs",
                    "conformance",
                    "-v",
                    "-p",
                    "no:cacheprovider",
                ]
                process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, start_new_session=True)
                records = folder / "reports" / "latest" / "records.jsonl"
                while process.poll() is None and not records.is_file():
                    time.sleep(0.05)
                time.sleep(rng.uniform(0.05, 3.0))
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            finished = set(re.findall(r"::test_(\w+\[\S+\]) PASSED", (folder / "log").read_text()))
            finished = {one for one in finished if not one.startswith("case_file")}
            have = {record.id for record in read_lines(records)[1]}
            told, kept = told + len(finished), kept + len(finished & have)
            read_run(folder / "reports" / "latest")
    return Row(
        f"killed with SIGKILL at {times} random moments",
        f"{kept} of {told} finished cells have their record", target="all", met=kept == told, repeats=times,
    )  # fmt: skip


def _pages(counts: list[int]) -> Iterator[Row]:
    """The page of a run with so many records, copies of those of a real run, opened in Chromium from disk."""
    header, records = _real_run()
    program = browser.find()
    assert program is not None, "Chromium is needed"
    with tempfile.TemporaryDirectory() as name, browser.running(program) as chromium:
        for count in counts:
            file = Path(name) / f"{count}.html"
            many = [_renamed(records[n % len(records)], n // len(records)) for n in range(count)]
            text: list[str] = []
            making = seconds_of(lambda many=many, text=text: text.append(page([("run", header, many)])))  # type: ignore[misc]
            file.write_text(text[0], encoding="utf-8")
            loads = [browser.load_times(chromium, file)["painted"] for _ in range(5)]
            median = statistics.median(loads)
            yield Row(
                f"page of {count:,} records: {len(text[0]) / 1e6:.1f} MB, made in {making:.1f} s",
                f"rows painted {median:.2f} s after opening, at most {max(loads):.2f} s",
                target="2 s" if count == 10_000 else "", met=max(loads) <= 2 if count == 10_000 else None, repeats=5,
            )  # fmt: skip


def _real_run() -> tuple[Header, list[Record]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cases = ROOT / "cases" / "registration"
        command = [sys.executable, "-m", "pytest", "--pyargs", "conformance", "--cases", str(cases), "-q"]
        subprocess.run(command, cwd=folder, capture_output=True, check=True)
        return read_run(folder / "reports" / "latest")


def _renamed(record: Record, number: int) -> Record:
    found = copy.deepcopy(record)
    if number:
        found.case = f"{record.case}_{number}"
        found.id = record.id.replace(record.case, found.case, 1)
    return found
