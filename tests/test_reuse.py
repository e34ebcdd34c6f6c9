"""Verdicts taken over from an earlier run, only where nothing has changed and only where they were good."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.depends.fingerprint import Fingerprints
from conformance.plan.catalogue import plan
from conformance.records.run_file import read_run
from tests.support import Outcome, load_case, run_suite

CASE = """
defaults:
  inputs: {x: "float32[batch, 3]"}
  dims: {batch: 1..4}
  export: {torchscript: [17]}
  runtimes: onnxruntime
  specials: false
good: {about: passes, forward: 2 * torch.sin(x)}
own: {about: has Python beside it, module: modules.Own}
bad: {about: fails, forward: "x / int(x.shape[0])"}
known: {about: fails as declared, forward: torch.asinh(x),
        fails: [{stage: export, error: UnsupportedOperatorError, because: there is no symbolic}]}
"""
MODULES = """
import torch
class Own(torch.nn.Module):
    def forward(self, x):
        return torch.cos(x) + helper.AMOUNT
import helper
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reuse")
    (folder / "cases").mkdir()
    (folder / "cases/cases.yaml").write_text(CASE)
    (folder / "cases/modules.py").write_text(MODULES)
    (folder / "cases/helper.py").write_text("AMOUNT = 1\n")
    first = run_suite(folder)
    assert first.code == 1
    assert not any(record["reused"] for record in first.records.values())
    (folder / "reports/latest").rename(folder / "reports/first")
    return folder


def reused(outcome: Outcome) -> dict[str, bool]:
    return {name: record["reused"] for name, record in outcome.records.items()}


def test_what_passed_or_failed_as_declared_is_taken_over_and_what_failed_is_run(folder: Path) -> None:
    again = run_suite(folder, "--reuse", "reports/first")
    _, before = read_run(folder / "reports/first")
    assert again.code == 1
    assert reused(again) == {record["id"]: record["status"] != "failed" for record in before}
    old = {record["id"]: record for record in before}
    for name, record in again.records.items():
        if record["reused"]:
            assert record == {**old[name], "reused": True}
    taken = sum(reused(again).values())
    assert f"{taken} cells taken over from an earlier run" in again.text
    spread = run_suite(folder, "--reuse", "reports/first", "-n", "2")
    assert reused(spread) == reused(again)


def test_a_run_may_be_continued_into_its_own_folder(folder: Path) -> None:
    first = run_suite(folder, "-k", "good")
    assert first.code == 0
    again = run_suite(folder, "-k", "good", "--reuse", "reports/latest")
    assert again.code == 0
    assert all(reused(again).values())


@pytest.mark.parametrize(
    ("file", "change", "again"),
    [
        ("helper.py", ("AMOUNT = 1", "AMOUNT = 2"), {"own"}),
        ("modules.py", ("torch.cos", "torch.tan"), {"own"}),
        ("cases.yaml", ("forward: 2 *", "forward: 3 *"), {"good"}),
        ("cases.yaml", ("dims: {batch: 1..4}", "dims: {batch: 1..5}"), {"good", "own", "known"}),
        ("cases.yaml", ("good: {", "good: {tolerance: {fp32: {rtol: 1.0e-7}}, "), {"good"}),
        ("cases.yaml", ("because: there is", "because: today there is"), {"known"}),
    ],
)
def test_exactly_the_cells_that_depend_on_a_change_have_another_fingerprint(
    folder: Path, file: str, change: tuple[str, str], again: set[str]
) -> None:
    before = fingerprints(folder)
    place = folder / "cases" / file
    text = place.read_text()
    assert change[0] in text
    try:
        place.write_text(text.replace(*change))
        now = fingerprints(folder)
    finally:
        place.write_text(text)
    changed = {name.split("[")[1].split("-")[0] for name in before if now[name] != before[name]}
    assert changed - {"bad"} == again
    assert fingerprints(folder) == before


def fingerprints(folder: Path, **settings: object) -> dict[str, str | None]:
    from conformance.case.file import load

    found = Fingerprints(settings)
    return {cell.id: found(cell) for case in load(folder / "cases/cases.yaml") for cell in plan(case)}


def test_the_cells_of_a_case_and_the_settings_of_a_run_have_fingerprints_of_their_own(folder: Path) -> None:
    found = fingerprints(folder, examples=3)
    assert len(set(found.values())) == len(found)
    assert not set(found.values()) & set(fingerprints(folder, examples=4).values())


def test_where_a_file_is_missing_nothing_is_known(tmp_path: Path) -> None:
    body = """
    forward: torch.sin(x)
    inputs: {x: "float32[3]"}
    depends: weights.npy
    """
    cell = next(plan(load_case(tmp_path, body)))
    assert Fingerprints({})(cell) is None
    (tmp_path / "weights.npy").write_bytes(b"1")
    first = Fingerprints({})(cell)
    (tmp_path / "weights.npy").write_bytes(b"2")
    assert first is not None
    assert Fingerprints({})(cell) not in (None, first)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--reuse", "nowhere"], "--reuse"),
        (["--reuse", "cases"], "there is no run"),
        (["--reuse", "reports/first", "--random"], "--random draws anew"),
    ],
)
def test_what_cannot_be_reused_is_a_usage_error(folder: Path, arguments: list[str], text: str) -> None:
    outcome = run_suite(folder, *arguments)
    assert outcome.code == 4
    assert text in outcome.text
    assert "Traceback" not in outcome.text


def test_files_of_relative_imports_count_and_those_of_packages_around_them(tmp_path: Path) -> None:
    nets = tmp_path / "nets"
    nets.mkdir()
    (nets / "core.py").write_text("AMOUNT = 1\n")
    (nets / "__init__.py").write_text("from .core import AMOUNT\n")
    (nets / "one.py").write_text("import torch\nfrom . import core\nclass One(torch.nn.Module):\n    pass\n")
    (tmp_path / "modules.py").write_text("from nets.one import One\n")
    cell = next(plan(load_case(tmp_path, "module: modules.One\ninputs: {x: 'float32[3]'}\n")))
    found = [Fingerprints({})(cell)]
    for file in ("core.py", "__init__.py", "one.py"):
        with (nets / file).open("a") as lines:
            lines.write("# edited\n")
        found.append(Fingerprints({})(cell))
    assert None not in found
    assert len(set(found)) == 4


def test_a_duration_is_measured_again(tmp_path: Path) -> None:
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases/one.yaml").write_text(
        """
one:
  about: sound
  forward: torch.sin(x)
  inputs: {x: "float32[batch, 3]"}
  dims: {batch: 1..4}
  export: {torchscript: [17]}
  runtimes: onnxruntime
  specials: false
  latency: {throughput: [1], seconds: 0.1}
""".replace("latency: {", "latency:\n  - {")
    )
    assert run_suite(tmp_path).code == 0
    again = run_suite(tmp_path, "--reuse", "reports/latest")
    assert again.code == 0, again.text
    taken = {name.partition("[")[0]: one for name, one in reused(again).items()}
    assert taken == {"export": True, "accuracy": True, "latency": False}
