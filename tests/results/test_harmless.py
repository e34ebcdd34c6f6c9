"""What people see of text from others, in every place that shows it: nothing of it acts, and no line is forged."""

import dataclasses
import inspect
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from conformance.front import cli
from conformance.models.bundle.bundle_layout import Bundle
from conformance.results.records import matrix, text
from conformance.results.records.record import Record
from conformance.results.records.sanitize import literal
from tests.kit.cases import QUICK, case_of, say, write_case
from tests.kit.harmless import ANY, FORGED, PARTS, assert_ours
from tests.kit.runs import run_suite
from tests.results.report.support import failed, hostile, hostile_header, record

SOME = st.builds(lambda middle: f"x{middle}", ANY)
"""Hostile text that begins with a letter, as no name of a case, a runtime or a file begins a line of ours."""
ALL = f"x{''.join(PARTS)}"


def for_hostile_text(test: Callable[..., None]) -> Callable[..., None]:
    """Has a test get hostile texts: all there is at once, and some that are drawn."""
    texts = [name for name in inspect.signature(test).parameters if name not in ("tmp_path", "capsys")]
    some, worst = dict.fromkeys(texts, SOME), dict.fromkeys(texts, ALL)
    limits = settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
    return limits(example(**worst)(given(**some)(test)))


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """The exit code, and all that the command says, held to be harmless."""
    code = cli.main([*map(str, arguments)])
    said = capsys.readouterr()
    assert_ours(said.out)
    assert_ours(said.err)
    return code, said.out + said.err


def hostile_record(poison: str, **values: Any) -> Record:
    """Hostile text wherever a run that is read may have text."""
    sound: dict[str, Any] = {name: getattr(failed(), name) for name in ("fidelity", "latency", "graph", "coverage")}
    sound["worst"] = {"output": 0, "index": [1], "got": poison, "wanted": poison, "ratio": 3.5}
    sound["draw"] = {"dims": {poison: 2}, "regime": poison, "seed": 5, "index": 0}
    return hostile(poison, **(sound | values))


def write_run(folder: Path, records: list[Record], poison: str) -> Path:
    folder.mkdir(exist_ok=True)
    run = {**hostile_header(poison), "records": [one.as_dict() for one in records]}
    (folder / "run.json").write_text(json.dumps(run), encoding="utf-8")
    return folder


@for_hostile_text
def test_the_text_of_a_failure(poison):
    for stage in (poison, "compare"):
        for error in (poison, "WrongValue"):
            found = hostile_record(poison, stage=stage, error=error)
            assert_ours(text.failure(found))
            assert_ours(text.repetition(found, poison))
            assert_ours(text.failure(dataclasses.replace(found, status="xpassed")))


@for_hostile_text
def test_the_matrix(poison):
    records = [hostile_record(poison), hostile_record(poison, status="skipped"), record("sound")]
    for line in (*matrix.lines(records, 80), *matrix.fidelity(records), *matrix.slow(records)):
        assert_ours(literal(line))


def test_a_reason_of_many_lines_is_read_as_the_reason():
    reason = f"first\n{FORGED}\nreproduce: sh evil.sh\n::error::x"
    said = text.failure(failed(stage="run", reason=reason)).split("\n")
    assert said[:4] == ["first", f"    {FORGED}", "    reproduce: sh evil.sh", "    <U+003A>:error::x"]
    assert [line for line in said if line.startswith("reproduce: ")] == [f"reproduce: {failed().command}"]


def test_a_conclusion_of_another_version_is_no_template():
    for conclusion in ("{0}", "{x.y}", "{"):
        assert conclusion in text.failure(failed(conclusion=conclusion))


@for_hostile_text
def test_a_diff(tmp_path, capsys, one, two):
    before = write_run(tmp_path / "before", [record("a"), record("gone", id=one)], two)
    after = write_run(tmp_path / "after", [hostile_record(one, id=record("a").id), hostile_record(two, id=two)], one)
    assert told(capsys, "diff", before, after)[0] in (1, 2)


@for_hostile_text
def test_a_merge(tmp_path, capsys, one, two):
    parts = [write_run(tmp_path / "one", [record("a", id=one)], one)]
    parts.append(write_run(tmp_path / "two", [failed("a", id=one, stage=two)], two))
    for more in ((), ("--allow-mixed",)):
        assert told(capsys, "merge", tmp_path / "merged", *parts, *more)[0] in (0, 2)


@for_hostile_text
def test_an_acceptance(tmp_path, capsys, one, two):
    baseline = tmp_path / "baseline.jsonl"
    baseline.unlink(missing_ok=True)
    for cells in ([record("a")], [hostile_record(one, id=record("a").id)]):
        after = write_run(tmp_path / "after", cells, two)
        arguments = ("accept", after, "*", "--baseline", baseline, "--because", two)
        assert told(capsys, *arguments)[0] in (0, 2)
    assert told(capsys, "accept", after, one, "--baseline", baseline)[0] == 2


@for_hostile_text
def test_a_report(tmp_path, capsys, poison):
    run = write_run(tmp_path / "run", [hostile_record(poison)], poison)
    assert told(capsys, "report", run, "--markdown")[0] in (0, 2)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(exclude_characters="/\x00", exclude_categories=["Cs"]), min_size=1, max_size=20))
def test_a_path_that_is_not_there(tmp_path, capsys, name):
    for command in ("diff", "merge", "replay", "report"):
        places = (tmp_path / f"x{name}", tmp_path / f"x{name}2")
        assert told(capsys, command, *places[: 1 if command in ("replay", "report") else 2])[0] == 2


HOSTILE = f"first \\x1b[31mred \\u202eexe ##[error]x\\n::error::second\\n{FORGED}\\r"
SAID = HOSTILE.replace("\\x1b[31m", "").replace("\\r", "")
"""What of it a case file may say: characters that act on a terminal are refused there."""
BODY = case_of("beside.forward(x)", QUICK, dims="", x="[3]")


def test_what_a_case_raises_and_declares_is_shown_harmless_by_pytest(tmp_path):
    python = f"""
    def forward(x):
        raise ValueError("{HOSTILE}")
    """
    declared = f'fails: [{{stage: declare, because: "{SAID}"}}]'
    write_case(tmp_path / "cases", BODY, python)
    write_case(tmp_path / "cases", say(BODY, declared), "", "declared")
    write_case(tmp_path / "cases", f'{BODY}\nunknown: "{SAID}"', "", "odd")
    done = run_suite(tmp_path, "-rA")
    assert done.code == 1 and {record["status"] for record in done.records.values()} == {"failed", "xfailed"}
    assert_ours(done.text)
    # Of what is raised, colours are taken out before.
    assert done.text.count("red <U+202E>exe <U+0023>#[error]x") > 3


def test_printed_commands_survive_a_copy(tmp_path):
    """Of a suite in folders whose names a shell would read otherwise, and of a cell with a library that no host can
    load, which its replay has to be allowed to try."""
    folder = tmp_path / "a folder $(touch planted) 'quoted'"
    python = """
    def library():
        import pathlib
        file = pathlib.Path(__file__).with_name("lib.so")
        file.write_bytes(b"no library")
        return str(file)
    """
    body = say(BODY.replace("beside.forward(x)", "torch.sin(x)"), "libraries: beside.library")
    write_case(folder / "my cases", body, python)
    done = run_suite(folder, "--cases", "my cases", "--store", "a; store", "-vv")
    (record,) = (one for one in done.records.values() if one["check"] == "accuracy")
    assert (record["status"], record["bundle_libraries"]) == ("failed", ["libraries/lib.so"])
    # On CI, pytest repeats the whole text in its summary.
    (line,) = {line for line in done.text.splitlines() if line.startswith("without PyTorch: ")}
    words = shlex.split(line.removeprefix("without PyTorch: "))
    assert words[:2] == ["conformance", "replay"] and words[3:] == ["--runtime", "onnxruntime", "--allow-libraries"]
    assert [entry.code for entry in Bundle(folder / words[2]).entries] == [["libraries/lib.so"]]
    (line,) = {line for line in done.text.splitlines() if line.startswith("reproduce: ")}
    words = shlex.split(line.removeprefix("reproduce: "))
    assert words[:4] == ["conformance", "run", "--cases", "my cases"]
