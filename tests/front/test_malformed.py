"""Files that are no runs and baselines: each command ends with one line and exit code 2, never with a traceback, and
some can use the rest of a damaged file."""

import copy
import json
import os
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.front import cli
from conformance.results.records.record import Record
from tests.kit.harmless import changed, places
from tests.results.baseline.support import CRASHED, HEADER, SKIPPED, XFAILED, put, record, written

LATENCY = {
    "runtime": "onnxruntime", "unit": "seconds",
    "budgets": [{"text": "1.2 x pytorch", "verdict": "holds", "ratio": 1.1, "seconds": None, "low": 1, "high": None}],
    "own": {"name": "onnxruntime", "median": 0.1, "samples": [0.1, 0.2], "interval": [0.1, 0.2]},
    "other": {"name": "pytorch fp32", "median": 0.2, "samples": [0.2, 0.3]}, "throughput": [],
}  # fmt: skip
FULL: dict[str, Any] = {
    "witnesses": [{"runtime": "onnx-reference", "answer": "stops", "error": "Fail", "config": {"a": "b"}}],
    "declared": [{"outcome": "otherwise", "place": "a.yaml:3", "stage": "run", "error": None},
                 {"outcome": "another", "line": 4, "stage": "run", "error": "Fail"},
                 {"outcome": "confirmed", "at": "n=1", "because": "so"}, {"outcome": "not run", "dims": {"n": 1}}],
    "draw": {"dims": {"n": 2}, "regime": "plain", "seed": 5, "index": 3}, "loss": {"export": 12.5},
    "graph": {"opset": 20, "nodes": {"Add": 2}, "sha": "aa"}, "histogram": {"counts": [1, 2]}, "inputs": {"x": "1.0"},
    "cause": {"name": "saturation", "lacks": ["avx512_vnni"], "shown_by": {"a": "b"}}, "findings": ["a", "b"],
    "declared_for": {"has": [], "lacks": ["avx512_vnni"]}, "fidelity": {"output": 0, "sqnr": 40.5},
    "conversion": {"tool": "own"}, "engine": {"bytes": 3}, "arithmetic": {"casts": []}, "latency": LATENCY,
    "worst": {"output": 0, "index": [0], "got": 1.0, "wanted": 1.0, "ratio": 0.2, "rounding": 0.5, "dims": {"n": 1}},
}  # fmt: skip
IDS = [f"accuracy[{case}-dynamo-op20-onnxruntime-fp32]" for case in ("one", "two", "three", "four")]
WRONG: tuple[Any, ...] = (
    None, True, 5, -1, 10**30, 0.5, "text", "", "nan", "half \ud800", [], ["a"], [[]], [None], {}, {"a": {}},
    {"a": 1},
)  # fmt: skip
"""Values that replace those of a run."""


def some_records() -> list[Record]:
    """Records that have every field filled."""
    return [
        record(IDS[0], **FULL), record(IDS[1], **{**FULL, **CRASHED}), record(IDS[2], **{**FULL, **XFAILED}),
        record(IDS[3], **{**FULL, **SKIPPED}), record("export[one-dynamo-op20]", graph=FULL["graph"]),
    ]  # fmt: skip


def a_run() -> dict[str, Any]:
    """A run of such records, as its file has it."""
    return {**copy.deepcopy(HEADER), "records": [one.as_dict() for one in some_records()]}


def commands(bad: Path, good: Path, out: Path) -> Iterator[list[str]]:
    """Everything that reads a run or a baseline, with the bad one in each place."""
    words = (
        "diff BAD GOOD", "diff GOOD BAD --json OUT/diff.json", "merge OUT/merged BAD --partial --allow-mixed",
        "merge OUT/merged GOOD BAD --allow-mixed", "accept BAD * --because so --baseline OUT/new.jsonl",
        "accept GOOD * --because so --baseline OUT/copy.jsonl",
        "report BAD --html OUT/a.html --json OUT/a.json --github --markdown OUT/a.md",
        "report BAD GOOD --html OUT/a.html --markdown", "report GOOD --baseline BAD --github",
    )  # fmt: skip
    places = {"BAD": str(bad), "GOOD": str(good), "OUT": str(out)}
    for line in words:
        yield [re.sub("BAD|GOOD|OUT", lambda match: places[match[0]], word) for word in line.split()]


Ends = Callable[..., "set[int]"]


@pytest.fixture
def ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Ends:
    """Runs every command on a bad run or baseline, checks the rules that hold for all, and gives their exit codes."""
    good, out = put(tmp_path / "good", some_records()), tmp_path / "out"
    out.mkdir()

    def run(bad: Path, only: str = "", number: int | None = None) -> set[int]:
        """``only`` has the names of commands, and ``number`` is that of a single one."""
        codes = set()
        for index, command in enumerate(commands(bad, good, out)):
            if command[0] not in (only or command[0]) or number not in (None, index):
                continue
            if "copy.jsonl" in command[-1]:
                if not bad.is_file():
                    continue
                (out / "copy.jsonl").write_bytes(bad.read_bytes())
            code = cli.main(command)
            error = capsys.readouterr().err
            assert code in (0, 1, 2), f"{' '.join(command)}\n{error}"
            assert "Traceback" not in error
            assert (code == 2) == bool(error) and len(error.splitlines()) <= 1, error
            assert len(error) < 2000, error[:3000]
            codes.add(code)
        return codes

    return run


GARBAGE: dict[str, bytes] = {
    "empty": b"", "binary": bytes(range(256)) * 40, "UTF-16": '{"schema": 1}'.encode("utf-16"),
    "one long line": b"x" * 1_000_000, "brackets": b"[" * 100_000,
    "a long number": b'{"schema": 1, "records": [], "seconds": ' + b"9" * 5000 + b"}",
    "NaN": b'{"schema": 1, "records": [], "seconds": NaN}', "a list": b"[1, 2]",
    "another schema": b'{"schema": 99, "records": []}',
    "records are no list": b'{"schema": 1, "records": {"id": 1}}',
    "records of records": b'{"schema": 1, "records": [[{}]]}',
    "a baseline of the future": b'{"baseline": 99, "environment": {}}',
    "versions of a baseline": b'{"baseline": 1, "environment": {"versions": 5}}',
    "conflict": b"<<<<<<< ours\n{}\n=======\n",
}  # fmt: skip


@pytest.mark.parametrize("name", GARBAGE)
@pytest.mark.parametrize("file", ["run.json", "records.jsonl", "baseline.jsonl"])
def test_garbage_is_one_line_and_exit_code_2(tmp_path, ends, name, file):
    place = tmp_path / "bad" / file
    place.parent.mkdir()
    place.write_bytes(GARBAGE[name])
    assert ends(place) == {2}


def test_what_is_no_file_or_cannot_be_read_is_one_line_and_exit_code_2(tmp_path, ends):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe.jsonl")
    links = {"endless.json": "/dev/zero", "itself": "itself", "gone": "nowhere", "unreadable": "/proc/self/mem"}
    for name, target in links.items():
        (tmp_path / name).symlink_to(target)
    (tmp_path / "nested" / "run.json").mkdir(parents=True)
    with (tmp_path / "huge.jsonl").open("wb") as huge:
        huge.truncate(5 << 30)
    for name in ("folder", "pipe.jsonl", *links, "nested", "huge.jsonl", "missing"):
        assert ends(tmp_path / name, only="diff merge report") == {2}, name


@pytest.mark.parametrize("file", ["run.json", "records.jsonl", "baseline.jsonl"])
def test_a_file_may_end_at_any_byte(tmp_path, ends, file):
    whole = put(tmp_path / "whole", some_records()[:2])
    data = (written(tmp_path, *some_records()) if file == "baseline.jsonl" else whole / file).read_bytes()
    place = tmp_path / file
    for end in random.Random(5).sample(range(len(data)), 10):
        place.write_bytes(data[:end])
        codes = ends(place)
        assert file != "run.json" or codes == {2}, end


@pytest.mark.parametrize("file", ["run.json", "baseline.jsonl"])
def test_no_value_in_the_wrong_place_is_a_mistake_of_ours(tmp_path, ends, file):
    """One seeded wrong value for each place of the header and a record, also the place left out."""
    place, chance = tmp_path / file, random.Random(12)
    if file == "run.json":
        said = a_run()
        del said["records"][1:]
    else:
        accepted = [{"kind": "slower", "because": "so", "was": {"ratio": 0.1, "latency": {"own": LATENCY["own"]}}}]
        text = written(tmp_path, *some_records()[:2]).read_text()
        said = [json.loads(line) for line in text.splitlines() if line]
        said[1]["accepted"] = accepted
    for path in places(said):
        new = changed(said, path, chance.choice((*WRONG, ...)))
        lines = new if isinstance(new, list) else [new]
        place.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
        ends(place, number=chance.randrange(9))


@pytest.mark.parametrize("path, value, said", [
    (("records", 0, "opset"), "17", "record 1 opset is \"17\", not a whole number"),
    (("records", 0, "worst", "ratio"), {}, "worst.ratio is an object, not a number"),
    (("records", 0, "status"), "perhaps", "status is \"perhaps\", not passed or failed"),
    (("records", 1, "id"), IDS[0], f"{IDS[0]} twice"),
    (("records", 0, "id"), "x" * 1_000_000, "id has 1000000 characters"),
    (("seconds",), "12", "seconds is \"12\", not a number"),
    (("environment", "versions", "onnx"), 1, "environment.versions.onnx is 1, not a text"),
])  # fmt: skip
def test_the_line_says_which_value_is_wrong(tmp_path, capsys, path, value, said):
    place = tmp_path / "run.json"
    place.write_text(json.dumps(changed(a_run(), path, value)), encoding="utf-8")
    assert cli.main(["diff", str(place), str(place)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "run.json" in line and said in line


def test_changes_beside_a_run_are_held_to_their_form(tmp_path, ends):
    folder = put(tmp_path / "bad", some_records())
    for text in ("{", "5", "{}", "[5]", "[[]]", '[{"id": 1}]', '[{"id": "a", "kind": []}]', "[" * 100_000):
        (folder / "changes.json").write_text(text, encoding="utf-8")
        assert cli.main(["report", str(folder)]) == 2, text
