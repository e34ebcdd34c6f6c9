"""Verdicts taken over from an earlier run, only where nothing has changed and only where they were good."""

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.case.files.case_file import load
from conformance.case.plan.catalogue import plan
from conformance.extras.cluster.coordinator import MadeCell
from conformance.front.plugin.options import may_stand
from conformance.front.plugin.running import Running
from conformance.models.kept.fingerprint import Fingerprints
from conformance.results.records.record import Record
from conformance.results.records.run_file import read_run
from tests.front.watch.support import CASES, project
from tests.kit.cases import QUICK, case_of, load_case, write_case
from tests.kit.runs import Outcome, run_command, run_suite
from tests.kit.unrun import UNRUN

CASE = f"""{CASES.replace("plain:", "good:")}
bad: {{about: fails, forward: "x / int(x.shape[0])"}}
known: {{about: fails as declared, forward: torch.asinh(x),
        fails: [{{stage: export, error: UnsupportedOperatorError, because: there is no symbolic}}]}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reuse")
    (project(folder) / "cases.yaml").write_text(CASE)
    first = run_suite(folder)
    assert first.code == 1 and not any(record["reused"] for record in first.records.values())
    (folder / "reports/latest").rename(folder / "reports/first")
    return folder


def reused(outcome: Outcome) -> dict[str, bool]:
    return {name: record["reused"] for name, record in outcome.records.items()}


def test_what_passed_or_failed_as_declared_is_taken_over_and_what_failed_is_run(folder):
    again = run_suite(folder, "--reuse", "reports/first")
    _, before = read_run(folder / "reports/first")
    assert again.code == 1 and reused(again) == {record.id: record.status != "failed" for record in before}
    old = {record.id: record.as_dict() for record in before}
    for name, record in again.records.items():
        if record["reused"]:
            assert record == {**old[name], "reused": True}
    taken = sum(reused(again).values())
    assert f"{taken} cells taken over from an earlier run" in again.text
    spread = run_suite(folder, "--reuse", "reports/first", "-n", "2", *UNRUN)
    assert reused(spread) == reused(again)


def test_a_run_may_be_continued_into_its_own_folder(folder):
    first = run_suite(folder, "-k", "good")
    assert first.code == 0
    again = run_suite(folder, "-k", "good", "--reuse", "reports/latest")
    assert again.code == 0 and all(reused(again).values())
    fewer = run_suite(folder, "-k", "good", "--reuse", "reports/latest", "--examples", "3", *UNRUN)
    assert fewer.records and not any(reused(fewer).values())


def fingerprints(folder: Path, **settings: object) -> dict[str, str | None]:
    found = Fingerprints(settings)
    return {cell.id: found(cell) for case in load(folder / "cases/cases.yaml") for cell in plan(case)}


def test_the_cells_of_a_case_and_the_settings_of_a_run_have_fingerprints_of_their_own(folder):
    found = fingerprints(folder, examples=3)
    assert len(set(found.values())) == len(found)
    assert not set(found.values()) & set(fingerprints(folder, examples=4).values())


def test_a_cell_that_another_host_has_run_has_the_fingerprint_of_that_host(tmp_path):
    class Options(dict[str, Any]):
        folder, earlier, required = tmp_path, dict, set

    settings = {"examples": None, "budget": None, "tensorrt": None, "provider_option": None, "explain": False}
    cell = next(plan(load_case(tmp_path, case_of("x * 2"))))
    options: Any = Options(settings, store=None, cases=None)
    running: Any = Running(options, options, lambda text: contextlib.nullcontext())
    running.clustered = SimpleNamespace(made=lambda cell: MadeCell(cell.id, cell.record(), {}, "elsewhere"))
    here, elsewhere = Fingerprints(settings)(cell), Fingerprints(settings, "elsewhere")(cell)
    assert running(cell).fingerprint == elsewhere != here


def test_cells_that_used_a_file_are_run_again_where_that_was_edited_or_is_gone(folder):
    place = folder / "cases/helper.py"
    for change in (lambda: place.write_text("AMOUNT = 2\n"), place.unlink):
        change()
        again = run_suite(folder, "--reuse", "reports/first", "-k", "own- or good-")
        assert {name for name, taken in reused(again).items() if not taken} == {
            name for name in again.records if "[own-" in name
        }
        assert "helper.py " in run_command(folder, "explain", "accuracy[[]own-*").text
    place.write_text("AMOUNT = 1\n")
    assert all(reused(run_suite(folder, "--reuse", "reports/first", "-k", "own- or good-")).values())


def test_without_observing_nothing_is_kept_and_nothing_taken_over(folder):
    options = ("--no-observe", "-k", "good", "--report", "reports/unobserved", "--store", "unobserved")
    assert run_suite(folder, *options).code == 0
    _, records = read_run(folder / "reports/unobserved")
    assert {record.depends for record in records} == {None}
    assert not any((folder / "unobserved" / name).exists() for name in ("index", "answers", "outcomes", "coverage"))
    again = run_suite(folder, "-k", "good", "--reuse", "reports/unobserved")
    assert not any(reused(again).values())


@pytest.mark.parametrize("arguments, text", [
    (["--reuse", "nowhere"], "--reuse"), (["--reuse", "cases"], "there is no run"),
    (["--reuse", "reports/first", "--random"], "--random draws other examples"),
])  # fmt: skip
def test_what_cannot_be_reused_is_a_usage_error(folder, arguments, text):
    outcome = run_suite(folder, *arguments)
    assert outcome.code == 4 and text in outcome.text and "Traceback" not in outcome.text


TIMED = case_of("torch.sin(x)", QUICK, "latency: [{throughput: [1], seconds: 0.1}]", dims="batch: 1..4")


def test_a_duration_is_measured_again(tmp_path):
    write_case(tmp_path / "cases", TIMED)
    assert run_suite(tmp_path).code == 0
    again = run_suite(tmp_path, "--reuse", "reports/latest")
    assert again.code == 0, again.text
    taken = {name.partition("[")[0]: one for name, one in reused(again).items()}
    assert taken == {"export": True, "accuracy": True, "latency": False}


NAN = case_of("x - x.sum()", QUICK.replace("\nspecials: false", ""), dims="batch: 1..4")


def test_what_ran_without_a_verdict_is_not_run_again_unless_it_is_required(tmp_path):
    write_case(tmp_path / "cases", NAN)
    first = run_suite(tmp_path)
    (skipped,) = (record for record in first.records.values() if record["status"] == "skipped")
    assert skipped["check"] == "specials" and skipped["undecided"], skipped
    again = run_suite(tmp_path, "--reuse", "reports/latest")
    assert again.records.keys() == first.records.keys() and all(reused(again).values())
    record = Record.from_dict(skipped)
    assert may_stand(record, {"openvino"}) and not may_stand(record, {"onnxruntime"})
