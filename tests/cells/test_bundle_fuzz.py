"""Damaged and hostile ``bundle.json``: always one line and exit code 2, or a bundle that can be used."""

import copy
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings

from conformance.front import cli
from conformance.models.bundle.bundle_layout import Bundle, BundleWriter
from conformance.models.bundle.entry import Entry
from conformance.process.errors import UserError
from conformance.results.records.run_file import read_run
from tests.kit.harmless import ANY, PARTS, assert_ours, changed, places

OPTIONS = {
    "workspace": 64, "optimization_level": None, "tf32": False, "hardware_compatibility": "none",
    "timing_cache": True, "cuda_graph": False, "plugins": [],
}  # fmt: skip
KIND = {"has": ["a"], "lacks": ["b"]}
EXPECTED = {
    "stage": "run", "error": "Odd", "because": "a reason", "fault": None, "place": "cases/a.yaml:3", "owed": True,
    "margin": True, "host": KIND,
}  # fmt: skip
TOLERANCE = {"kind": "tolerance", "tolerances": [{"rtol": 1e-5, "atol": 0, "absolute": False}, None],
             "any_order": [False, True]}  # fmt: skip
NOISE = {"sqnr": 20.0, "runtime": 40, "epsilon": 0.1, "smallest": 0.0, "cosine": None, "magnitude": 0.5}
BUDGET = {"kind": "budget", "budgets": [NOISE], "any_order": [False]}


def entry(**values: Any) -> dict[str, Any]:
    """An entry in which every field has a value."""
    return {
        "name": "test_accuracy-a", "case": "a", "exporter": "dynamo", "opset": 20, "precision": "fp32",
        "check": "accuracy", "source": {"file": "cases/a.yaml", "line": 3},
        "graph": {"opset": 20, "nodes": {"Add": 2}, "sha": "0a"}, "inputs": ["x", "y"], "judge": TOLERANCE,
        "build": {"shapes": {"x": [[1, 3], [2, 3], [4, 3]]}, "model_precision": "fp32", "options": OPTIONS},
        "sets": [{"dims": {"batch": 2}, "regime": "plain", "seed": 7, "index": 0, "conditioning": [0.5, 1],
                  "apart": ["tensorrt", {"runtime": "onnxruntime", "cpu": KIND}], "exact": True}],
        "runtimes": ["tensorrt", "onnxruntime"], "expected": {"tensorrt": [EXPECTED], "engine": [EXPECTED]},
        "excused": [0], "own_code": ["aten::asinh"], "libraries": [],
        "trial": {"rows": True, "equal": [0], "batches": [1, 4]}, "conversion": {"tool": {"name": ["a"]}},
        "config": {"session.x64quantprecision": "1"}, "command": None, **values,
    }  # fmt: skip


HEAD = {
    "format": 1, "environment": {"versions": {"torch": "2.9"}},
    "entries": [entry(), entry(name="test_accuracy-b", case="b", judge=BUDGET)],
}  # fmt: skip

WRONG: tuple[Any, ...] = (
    None, True, -1, 3, 2**70, 10**400, 0.5, float("nan"), float("inf"), 1e308, "", "text", "../x", "\ud800", "a\nb",
    [], [[[]]], {}, {"a": {"b": []}}, ["x"], [None], [-1], [1e308],
)  # fmt: skip


@pytest.fixture(autouse=True)
def no_tensorrt(monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker is needed to find out that nothing can be run, and the records are those of a host without."""
    monkeypatch.setitem(sys.modules, "tensorrt", None)


def replayed(folder: Path, data: str | bytes, capsys: pytest.CaptureFixture[str]) -> int:
    """The exit code of a replay whose cells cannot be run here: 1 where the bundle can be used, or 2 and one line."""
    place = folder / "bundle"
    place.mkdir(exist_ok=True)
    raw = data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass")
    (place / "bundle.json").write_bytes(raw)
    capsys.readouterr()
    code = cli.main(["replay", str(place), "--report", str(folder / "out"), "--require"])
    said = capsys.readouterr()
    assert_ours(said.out)
    assert_ours(said.err)
    assert code in (1, 2), said.err
    if code == 2:
        assert said.err.startswith("conformance replay: ")
        assert len(said.err.splitlines()) == 1 and len(said.err) < 600, said.err
    else:
        assert read_run(folder / "out")[1]
    return code


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def test_the_bundle_that_is_spoiled_here_is_a_sound_one(tmp_path, capsys):
    assert replayed(tmp_path, json.dumps(HEAD), capsys) == 1
    records = read_run(tmp_path / "out")[1]
    assert [record.check for record in records] == ["accuracy", "engine"] * 2
    assert {field.name for field in dataclasses.fields(Entry)} == entry().keys()


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.thorough), 29])
def test_values_of_every_wrong_type_in_every_place(tmp_path, capsys, step):
    """All of them, or each 29th, which takes another kind of value in each place."""
    tried = [(path, wrong) for path in places(HEAD) for wrong in WRONG]
    assert len(tried) > 2000
    codes = [replayed(tmp_path, json.dumps(changed(HEAD, *one)), capsys) for one in tried[::step]]
    assert codes.count(2) > len(codes) / 2


def test_fields_that_are_missing_or_unknown(tmp_path, capsys):
    replayed(tmp_path, json.dumps({**HEAD, "unknown": 1}), capsys)
    for path in places({**HEAD, "entries": HEAD["entries"][:1]}):
        replayed(tmp_path, json.dumps(changed(HEAD, path, ...)), capsys)
        if isinstance(there := at(HEAD, path), dict):
            replayed(tmp_path, json.dumps(changed(HEAD, path, {**there, "unknown": 1})), capsys)


@pytest.mark.parametrize("path, words", [
    (("entries", 0, "judge", "tolerances", 0, "rtol"), "entries[0].judge.tolerances[0].rtol is NaN"),
    (("entries", 0, "sets", 0, "dims", "batch"), "entries[0].sets[0].dims.batch is NaN, not a whole number"),
    (("entries", 1, "name"), "entries[1].name is NaN, not a text"),
])  # fmt: skip
def test_the_line_names_the_field_and_what_it_holds(tmp_path, path, words):
    head = copy.deepcopy(HEAD)
    at(head, path[:-1])[path[-1]] = float("nan")
    (tmp_path / "bundle.json").write_text(json.dumps(head))
    with pytest.raises(UserError) as caught:
        Bundle(tmp_path)
    assert words in str(caught.value) and str(caught.value).startswith(str(tmp_path / "bundle.json"))


@pytest.mark.parametrize("data", [
    b"", b"null", b"[]", b"1", b'"x"', b"\xff\xfe", b"[" * 200_000, b'{"a":' * 200_000, b"NaN", b"1" * 10_000,
    b'{"format": 1}', b'{"format": true}', b'{"format": 1.0}', b'{"format": 1, "entries": []}', b"\0" * 100,
    json.dumps({**HEAD, "entries": HEAD["entries"] * 2}).encode(),
    json.dumps({**HEAD, "entries": [entry(), entry(name="test_accuracy-b")]}).encode(),
    json.dumps({**HEAD, "environment": json.loads("[" * 100 + "]" * 100)}).encode(),
    json.dumps({**HEAD, "environment": {"a": json.loads('{"a":' * 100 + "1" + "}" * 100)}}).encode(),
])  # fmt: skip
def test_what_is_no_bundle_at_all(tmp_path, capsys, data):
    assert replayed(tmp_path, data, capsys) == 2


def test_what_a_bundle_could_not_be_read_with_is_not_written(tmp_path):
    writer = BundleWriter(tmp_path / "bundle", {})
    writer.add(Entry(**entry()))
    with pytest.raises(UserError, match="config"):
        writer.add(Entry(**entry(name="test_b", case="b", config={"ep.context_file_path": "x"})))
    assert [one.name for one in Bundle(tmp_path / "bundle").entries] == ["test_accuracy-a"]


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ANY)
@example("".join(PARTS))
def test_text_of_a_bundle_is_shown_harmless(tmp_path, capsys, poison):
    told = entry(
        case=f"x{poison}", exporter=poison, precision=poison, source={"file": f"x{poison}", "line": 3},
        runtimes=["tensorrt", poison], own_code=[poison], inputs=[poison],
    )  # fmt: skip
    assert replayed(tmp_path, json.dumps({**HEAD, "entries": [told]}), capsys) == 1
    for name in ("regime", "dims"):
        told["sets"][0][name] = poison
    replayed(tmp_path, json.dumps({**HEAD, "entries": [{**told, "name": f"x{poison}"}]}), capsys)
