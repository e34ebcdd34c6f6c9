"""No input is kept on which other people's software crashes or hangs: in no record, no case and no page of evidence.

What this project does at a crash is tested with processes that end themselves (``tests/kit/fatal.py``).
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from conformance.case.plan.catalogue import plan
from conformance.process.worker.isolation import Death
from conformance.results.records.death import ENDED, note_death
from evidence import model_types
from evidence.accusations.page import section_of
from evidence.accusations.run import Outcome, Red, Study
from evidence.onnx_tests.tally import page
from evidence.onnx_tests.try_tests import Result
from evidence.reach import cases
from evidence.reach import page as reach
from tests.kit.cases import case_of, load_case

ROOT = Path(__file__).parent.parent.parent
SIGNALS = "SEGV|ABRT|FPE|ILL|BUS|TRAP|SYS"
"""Those that a process sends to itself by mistake; SIGKILL is what pages of evidence send to their own processes."""
CRASH_OR_HANG = rf"\bSIG({SIGNALS})\b|\btimeout after \d|\bTimeout\b"
ON_A_PAGE = re.compile(CRASH_OR_HANG)
ENDING = re.compile(rf"{CRASH_OR_HANG}|{ENDED}|\A(SIGKILL|exit -?\d+|ProcessLost)\Z")
"""How the name of an error, or a reason, says of a process that it ended or hung."""
OWN = {
    "case: forward waits for ever", "case: the process is ended", "host: the process is killed while it converts",
    "host: the process is killed while it exports", "host: the process is killed while it runs",
    "kernel: ends the process", "kernel: hangs",
}  # fmt: skip
"""Planted defects that end or hold up their own process: by ``os.kill``, ``os._exit`` or a sleep."""


def ends(said: Any, place: str = "") -> Iterator[str]:
    """Yield where a record, a declared failure or an entry says that a process ended."""
    if isinstance(said, list):
        for value in said:
            yield from ends(value, place)
    if not isinstance(said, dict) or said.get("id") in OWN:
        return
    place = f"{place} {said.get('id', '')}".strip()
    for name in ("signal", "error", "reason"):
        texts = said.get(name)
        for text in texts if isinstance(texts, list) else [texts]:
            if isinstance(text, str) and (name == "signal" or ENDING.search(text)):
                yield f"{place}: {name}: {text}"
    for name, value in said.items():
        yield from ends(value, f"{place} {name}")


def documents(file: Path) -> Iterator[Any]:
    """What a file says; nothing where no word of it can be about a process that ended, since parsing takes time."""
    text = file.read_text(encoding="utf-8")
    if not re.search(r"SIG[A-Z]|[Tt]imeout|exit|process|Process|signal", text):
        return
    if file.suffix == ".jsonl":
        yield from (json.loads(line) for line in text.splitlines() if line.strip())
    else:
        yield json.loads(text) if file.suffix == ".json" else YAML(typ="safe").load(text)


def files(root: Path) -> list[Path]:
    """The files of a checkout that hold records, cases and evidence, without what runs leave there."""
    below = [root / name for name in ("benchmarks", "cases", "docs", "evidence", "tests")]
    data = [file for folder in below for end in ("json", "jsonl", "yaml") for file in folder.rglob(f"*.{end}")]
    return [*(root / "reports").glob("*.jsonl"), *data, *(root / "docs" / "evidence").glob("*.md")]


def kept(root: Path) -> list[str]:
    """What a checkout keeps of processes that ended, each with its file."""
    found = []
    for file in files(root):
        told = [] if file.suffix == ".md" else [place for document in documents(file) for place in ends(document)]
        if file.suffix == ".md" or file.is_relative_to(root / "cases"):  # in whose comments it may be told
            told += [line for line in file.read_text(encoding="utf-8").splitlines() if ON_A_PAGE.search(line)]
        found += [f"{file.relative_to(root)}: {one[:200]}" for one in told]
    return found


def test_nothing_that_ends_or_hangs_other_peoples_software_is_kept():
    assert kept(ROOT) == []
    names = {file.relative_to(ROOT).as_posix() for file in files(ROOT)}
    assert names >= {
        "reports/baseline.jsonl", "reports/baseline-tensorrt-rtx.jsonl", "docs/evidence/h200-trt8.6/run.json",
        "evidence/golden/rows.jsonl", "evidence/accusations/looked_at.yaml", "docs/evidence/accusations.md",
        "tests/hosts/lacks_vnni/records.jsonl", "cases/deform_conv/deform_conv.yaml",
    }  # fmt: skip


HOWS = [("SIGSEGV", None), ("SIGFPE", None), ("exit 3", None), ("timeout after 60 s", "Timeout")]


@pytest.mark.parametrize(("how", "name"), HOWS)
def test_the_record_of_a_process_that_ended_is_found_wherever_it_is_kept(tmp_path, how, name):
    record = next(iter(plan(load_case(tmp_path / "planted", case_of("torch.sin(x)"))))).record()
    sound = record.as_dict()
    note_death(record, Death(how, {"stage": "export"}, "", name))
    ended = record.as_dict()
    for folder in ("reports", "docs/evidence/gpu", "evidence/golden", "cases/a"):
        (tmp_path / folder).mkdir(parents=True)
    plain = {"id": sound["id"], "status": "failed", "stage": "export", "error": "ValueError"}
    row, declared = {"fields": ended}, {"stage": "run", "error": ended["error"]}
    for place, without, within in (
        ("docs/evidence/gpu/run.json", {"records": [sound, sound]}, {"records": [sound, ended]}),
        ("reports/baseline.jsonl", plain, {**plain, "error": ended["error"]}),
        ("evidence/golden/rows.jsonl", {"id": "kernel: hangs", **row}, {"id": "kernel: another", **row}),
        ("cases/a/a.yaml", {"a": {"fails": [plain]}}, {"a": {"fails": [declared]}}),
    ):
        file = tmp_path / place
        file.write_text(json.dumps(without), encoding="utf-8")
        assert kept(tmp_path) == [], place
        file.write_text(json.dumps(within), encoding="utf-8")
        assert kept(tmp_path) and all(one.startswith(place) for one in kept(tmp_path))
        file.unlink()


@pytest.mark.parametrize("name", ["docs/evidence/a.md", "cases/a.yaml"])
def test_a_text_that_says_what_ended_a_process_is_found(tmp_path, name):
    file = tmp_path / name
    file.parent.mkdir(parents=True)
    file.write_text("# 1, not named: its process ended, or ran out of 180 s\n", encoding="utf-8")
    assert kept(tmp_path) == []
    for told in ("SIGABRT", "the process ended at stage run: timeout after 180 s"):
        file.write_text(f"# Planted_0: {told}\n", encoding="utf-8")
        assert len(kept(tmp_path)) == 1


# ---- pages about modules and models of others ------------------------------------------------------------------
REASON = f"{ENDED} export: SIGABRT"


def test_pages_count_what_ends_a_process_and_do_not_name_it():
    """Beside a failure that is named."""
    said = {"exporter": "dynamo", "runtime": None, "check": "export", "stage": "export", "fault": "exporter"}
    reds = [Red("Ended_0", **said, error="SIGABRT", reason=REASON), Red("Raised_0", **said, error="E", reason="e")]
    study = Study("usual", [Outcome(red.module, "", reds=[red]) for red in reds], {}, 1.0, whole=True)
    accused = section_of(study, [], "here")
    assert "Ended_0" not in accused and "`Raised_0`" in accused and "not named | 1 | exporter 1 |" in accused

    types = [model_types.Result(f"lib.{one}", "red: exporter", f"export: {why}", "", "") for one, why in (
        ("Ended", f"SIGABRT: {REASON}"), ("Raised", "ValueError: e"))]  # fmt: skip
    section = model_types.section("timm", types)
    assert "lib.Ended" not in section and "| lib.Raised |" in section
    assert "| 1, not named | red: exporter |" in section

    cell = {"check": "accuracy", "runtime": "openvino", "status": "failed", "fault": "runtime", "witnesses": []}
    tests = [Result(f"test_{name}", "Abs", 17, 1.0, [{**cell, "check": check, "reason": why} for check, why in cells])
             for name, cells in (("ended", [("accuracy", REASON)]), ("raised", [("accuracy", "e")]))]  # fmt: skip
    lines = "\n".join(page({"recorded": tests}))
    assert "| ended |" not in lines and "| raised |" in lines and "At 1 of them the process ended" in lines

    found = [cases.Outcome("ended", "not at all", cases.ENDS), cases.Outcome("raised", "not at all", "raises")]
    names = {kind: names for _, kind, _, names in reach.Shares(found, [1.0, 1.0]).kinds()}
    assert names == {cases.ENDS: [], "raises": ["raised"]}
