"""Bundles: packed with PyTorch, replayed without it, in the form of ONNX's own tests."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from conformance.front import cli
from conformance.models.bundle.bundle_layout import Bundle
from conformance.results.records import text
from conformance.results.records.record import Record
from conformance.results.records.run_file import read_run
from tests.kit.bundles import copy_cases, edit_entries, pack, replay, spoil
from tests.kit.cases import case_of, say, write_case
from tests.kit.doubles import search_doubles
from tests.kit.runs import Outcome, run_command, run_suite

BODY = """
forward: torch.sin(x) * w, (x > 0)
inputs: {x: "float32[batch, 3]", w: "float32[]"}
dims: {batch: 1..8}
runtimes: [onnx-reference, onnxruntime, tensorrt]
precisions: {fp16: {}}
export: {torchscript: [17]}
"""
FP32 = BODY.replace("precisions: {fp16: {}}\n", "")
ROWS = FP32.replace("* w, (x > 0)", "").replace(', w: "float32[]"', "")
"""With a batch in every input, so that an engine can be tried at several."""
FAILS = "fails: [{{when: {{{when}}}, stage: {stage}{more}, because: a reason}}]"
CASES = {
    "at_load": say(FP32, FAILS.format(when="runtime: onnxruntime", stage="load", more=", error: InvalidGraph")),
    "at_eight": say(FP32, FAILS.format(when="runtime: onnxruntime, at: {batch: 8}", stage="compare", more="")),
    "in_values": say(FP32, FAILS.format(when="runtime: onnxruntime", stage="compare", more=", error: WrongValue")),
    "halves": ROWS.replace("torch.sin(x)", "torch.cat([(x + 4096.0) - 4096.0, x * 0.7], 1)"),
    "rows": ROWS,
    "rows_declared": say(ROWS, FAILS.format(when="check: engine", stage="compare", more=", error: RowsDiffer")),
}
NAMES = {"test_accuracy-planted-torchscript-op17", "test_accuracy-planted-torchscript-op17-fp16"}
WRONG = "def symbolic(g, x):\n    return g.op('Sin', x)\n"
WRONG_BODY = case_of(
    "torch.asinh(x)",
    "runtimes: onnxruntime",
    "specials: false",
    "export: {torchscript: {opsets: [17], symbolics: {aten::asinh: beside.symbolic}}}",
    dims="batch: 1..8",
)


@pytest.fixture(scope="module")
def all_cases(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    for name, body in CASES.items():
        write_case(folder / "cases", body, "", name)
    code, place = pack(folder, BODY)
    assert code == 0
    return place


@pytest.fixture(scope="module")
def packed(all_cases, tmp_path_factory) -> Path:
    """The bundle of one case, which tests leave as it is."""
    return copy_cases(all_cases, tmp_path_factory.mktemp("planted"), "planted")


@pytest.fixture
def bundle(packed, tmp_path) -> Path:
    """A copy of it, to be changed."""
    return copy_cases(packed, tmp_path, "planted")


def test_the_opsets_that_are_asked_for_are_packed_whatever_the_case_gives_tensorrt(tmp_path):
    body = BODY.replace("[17]", "[13, 15, 17]")
    assert pack(tmp_path, body, "", "--opset", "13,15")[0] == 0
    packed = {(entry.opset, entry.precision) for entry in Bundle(tmp_path / "bundle").entries}
    assert packed == {(opset, precision) for opset in (13, 15) for precision in ("fp32", "fp16")}


def test_a_bundle_holds_models_examples_and_cells_as_data(packed):
    bundle = Bundle(packed)
    assert {entry.name for entry in bundle.entries} == NAMES
    for entry in bundle.entries:
        assert json.loads(json.dumps(dataclasses.asdict(entry))) == dataclasses.asdict(entry)
    (fp32, _) = bundle.entries
    assert fp32.build["shapes"]["x"] == [[1, 3], [3, 3], [8, 3]] and fp32.inputs == ["x", "w"]
    examples = list(bundle.examples(fp32))
    assert len(examples) == len(fp32.sets) == 16 and {example.draw.dims["batch"] for example in examples} >= {1, 8}
    first = examples[0]
    assert first.inputs["w"].shape == ()  # 0-d stays 0-d
    np.testing.assert_allclose(first.wanted[0], np.sin(first.inputs["x"]) * first.inputs["w"], rtol=1e-5, atol=1e-6)
    assert first.exact is not None and first.exact[0].dtype == np.float64
    assert bundle.environment["versions"]["torch"]


def test_a_bundle_replays_with_the_ids_and_verdicts_of_the_suite_and_its_runs_are_compared_like_any(
    packed, tmp_path, capsys
):
    for runtime in ("onnxruntime", "onnx-reference"):
        report = tmp_path / runtime
        assert cli.main(["replay", str(packed), "--runtime", runtime, "--report", str(report)]) == 0
        header, records = read_run(report)
        assert (header["environment"]["flags"], header["environment"]["command"]) == ([], sys.argv[1:])
        # ONNX's evaluator runs no converted models, here as in the suite
        precisions = ("fp32", "fp16") if runtime == "onnxruntime" else ("fp32",)
        assert {one.id for one in records} == {
            f"accuracy[planted-torchscript-op17-{runtime}-{p}]" for p in precisions
        }
        for record in records:
            assert sum(record.histogram["counts"]) == record.examples >= 12
            assert record.status == "passed" and record.command and record.source["line"] == 1
    one, two = (str(tmp_path / runtime) for runtime in ("onnxruntime", "onnx-reference"))
    assert cli.main(["diff", one, one]) == 0
    assert "limited by" not in capsys.readouterr().out
    assert cli.main(["diff", one, two]) == 1  # the cells of the other vanished
    assert "in the earlier run only: 2" in capsys.readouterr().out
    assert cli.main(["report", one]) == 0
    assert "planted-torchscript-op17-onnxruntime-fp16" in (tmp_path / "onnxruntime" / "report.html").read_text()


def test_data_sets_lie_as_those_of_onnx_in_the_order_of_the_graph(packed):
    """https://github.com/onnx/onnx/blob/main/docs/OnnxBackendTest.md"""
    place = packed / "cells" / "test_accuracy-planted-torchscript-op17"
    evaluator = ReferenceEvaluator(str(place / "model.onnx"))
    for folder in sorted(place.glob("test_data_set_*")):
        read = lambda name, folder=folder: onnx.numpy_helper.to_array(onnx.load_tensor(folder / f"{name}.pb"))  # noqa: E731
        inputs = {name: read(f"input_{n}") for n, name in enumerate(evaluator.input_names)}
        for number, output in enumerate(evaluator.run(None, inputs)):
            np.testing.assert_allclose(output, read(f"output_{number}"), rtol=1e-5, atol=1e-6)
    assert len(inputs) == 2


# ---- without PyTorch ----------------------------------------------------------------------------------------
FORBIDDEN = ("torch", "torchvision", "pydantic", "pytest", "hypothesis", "ruamel", "rich", "onnxscript")


def test_a_replay_needs_neither_torch_nor_pytest_nor_what_reads_case_files(packed, tmp_path, capsys):
    """In all its processes: a sitecustomize that each of them runs forbids the modules. What a replay of some cells
    lacks has not vanished."""
    code = f"import sys\nfor name in {FORBIDDEN!r}:\n    sys.modules[name] = None\n"
    (tmp_path / "sitecustomize.py").write_text(code)
    path = str(tmp_path) + os.pathsep + os.environ.get("PYTHONPATH", "")
    done = run_command(
        tmp_path, "replay", packed, "--runtime", "onnxruntime", "--report", "some", "-k", "fp16",
        own_process=True, PYTHONPATH=path,
    )  # fmt: skip
    assert done.code == 0 and "1 cell: 1 passed" in done.text, done.text
    probe = [sys.executable, "-c", "import torch"]
    blocked = subprocess.run(probe, env={**os.environ, "PYTHONPATH": path}, capture_output=True, check=False)
    assert blocked.returncode != 0  # or the test would show nothing
    replay(packed, "--runtime", "onnxruntime")
    capsys.readouterr()
    assert cli.main(["diff", str(packed.parent / "replayed"), str(tmp_path / "some")]) == 0
    assert "limited by -k fp16" in capsys.readouterr().out


# ---- defects are found in a replay --------------------------------------------------------------------------
def test_a_runtime_that_is_wrong_is_found_and_blamed(bundle):
    """As seen from the bundle: its right answers are all off by a little."""
    for name in ("output_0", "exact_0"):
        spoil(bundle, name, lambda array: array * array.dtype.type(1.01))
    code, records = replay(bundle, "--runtime", "onnxruntime")
    assert code == 1
    found = {record["precision"]: record for record in records.values()}
    record = found["fp32"]
    assert (record["status"], record["stage"], record["error"]) == ("failed", "compare", "WrongValue")
    assert any("is wrong too" in line for line in text.details(Record.from_dict(record))) and record["draw"]["dims"]
    answers = {witness["runtime"]: witness["answer"] for witness in record["witnesses"]}
    assert {*answers} >= {"onnxruntime-unoptimized", "onnx-reference"} and {*answers.values()} == {"wrong"}
    assert record["worst"]["ratio"] > 100
    assert (found["fp16"]["status"], found["fp16"]["fault"]) == ("failed", "runtime")


def test_examples_that_could_not_fail_are_not_a_pass(bundle):
    """With such a tolerance zeros would be right too."""
    wide = [{"rtol": 1e9, "atol": 1e9, "absolute": True}, None]
    judge = {"kind": "tolerance", "any_order": [False, False], "tolerances": wide}
    edit_entries(bundle, lambda entry: entry.update(judge=judge))
    code, records = replay(bundle, "--runtime", "onnxruntime")
    assert code == 1
    assert {record["error"] for record in records.values()} == {"Vacuous"}


def test_a_vacuous_cell_is_not_packed_and_others_are(tmp_path):
    vacuous = FP32.replace("torch.sin(x) * w, (x > 0)", "x * 0").replace(', w: "float32[]"', "")
    write_case(tmp_path / "cases", vacuous, "", "vacuous")
    code, place = pack(tmp_path, BODY, "", "--precision", "fp32")
    assert code == 1
    assert [(entry.case, entry.precision) for entry in Bundle(place).entries] == [("planted", "fp32")]


def test_declared_failures_travel_with_the_bundle(all_cases, tmp_path):
    place = copy_cases(all_cases, tmp_path, "at_load")
    code, records = replay(place, "--runtime", "onnxruntime")
    assert (code, [one["status"] for one in records.values()]) == (1, ["xpassed"])
    bundle = Bundle(place)
    file = bundle.model(bundle.entries[0])
    model = onnx.load(file)
    model.graph.node[0].op_type = "NoSuchOperator"
    file.write_bytes(model.SerializeToString())
    (found,) = replay(place, "--runtime", "onnxruntime")[1].values()
    assert (found["status"], found["stage"], found["reason"]) == ("xfailed", "load", "a reason")


def test_draws_at_which_a_runtime_is_declared_to_fail_are_not_run_by_it(all_cases, tmp_path):
    place = copy_cases(all_cases, tmp_path, "at_eight")
    (entry,) = Bundle(place).entries
    apart = ["onnxruntime"]
    assert {one["dims"]["batch"] for one in entry.sets if one["apart"] == apart} == {8}
    (record,) = replay(place, "--runtime", "onnxruntime")[1].values()
    assert record["status"] == "passed" and record["examples"] < len(entry.sets)
    assert any("declared to fail, and not run" in line for line in text.details(Record.from_dict(record)))
    (other,) = replay(place, "--runtime", "onnx-reference")[1].values()
    assert other["examples"] + other["ill_conditioned"] == len(entry.sets)


def test_a_declared_wrong_value_may_be_missing_in_the_packed_examples(all_cases, tmp_path):
    place = copy_cases(all_cases, tmp_path, "in_values")
    assert [one["status"] for one in replay(place, "--runtime", "onnxruntime")[1].values()] == ["passed"]
    for off in (1.6e-5, 1e-4):  # less than twice what is allowed, and far more
        spoil(place, "output_0", lambda array, off=off: array * np.float32(1 + off))
        spoil(place, "exact_0", lambda array, off=off: array * (1 + off))
        (found,) = replay(place, "--runtime", "onnxruntime")[1].values()
        assert found["status"] == "xfailed"


def test_what_is_excused_value_by_value_travels_with_the_bundle(all_cases, tmp_path):
    place = copy_cases(all_cases, tmp_path, "halves")

    def found() -> dict[str, Any]:
        (record,) = replay(place, "--runtime", "onnxruntime")[1].values()
        return record

    spoil(place, "output_0", lambda array: array + np.float32([2e-4, 0, 0, 0, 0, 0]))
    record = found()
    assert record["status"] == "passed" and record["excused"] > 0, record["reason"]
    for name in ("output_0", "exact_0"):
        spoil(place, name, lambda array: array + array.dtype.type(2e-4) * (np.arange(6) == 3))
    assert found()["error"] == "WrongValue"
    spoil(place, "moved_0", lambda array: array * np.nan)
    assert "the bundle is damaged" in found()["reason"]


def test_of_a_converted_model_a_bundle_has_one_number_for_each_output_as_earlier_versions_wrote_and_read(
    all_cases, tmp_path
):
    """The mean square of how far other roundings move it, where there are no arrays of how far each value moves."""
    place = copy_cases(all_cases, tmp_path, "planted")
    (entry,) = (entry for entry in Bundle(place).entries if entry.precision == "fp16")
    before = [example.conditioning() for example in Bundle(place).examples(entry)]
    for file in place.glob("cells/*/test_data_set_*/moved_*.pb"):
        file.unlink()
    after = [example.conditioning() for example in Bundle(place).examples(entry)]
    assert any(moved[0].any() for moved in before)
    for (by_value, _), (number, _) in zip(before, after, strict=True):
        assert number == pytest.approx(np.sqrt(np.mean(np.square(by_value))))
    assert replay(place, "--runtime", "onnxruntime")[0] == 0


# ---- on a host with TensorRT, and without -------------------------------------------------------------------
def replay_on_double(folder: Path, place: Path, *arguments: str, **variables: str) -> tuple[Outcome, list[Record]]:
    path = search_doubles(folder, **variables)
    done = run_command(folder, "replay", place, "--report", "out", *arguments, PYTHONPATH=path)
    return done, read_run(folder / "out")[1]


def test_a_bundle_on_a_host_with_tensorrt_gives_records_of_tensorrt(packed, tmp_path):
    done, records = replay_on_double(tmp_path, packed, "--require")
    assert done.code == 0, done.text
    header, _ = read_run(tmp_path / "out")
    assert header["environment"]["gpu"]["name"] == "TensorRT double (no GPU)"
    assert header["environment"]["packed"]["versions"]["torch"]
    assert [(record.check, record.status) for record in records] == [
        ("accuracy", "passed"), ("engine", "passed"), ("accuracy", "passed"), ("engine", "passed"),
    ]  # fmt: skip
    engine = records[1].engine
    assert engine["layers"]
    assert [one["batch"] for one in engine["times"]] == []  # the case has an input without rows


def test_what_only_an_engine_can_show_is_found_in_a_replay_and_expected_where_it_is_declared(all_cases, tmp_path):
    place = copy_cases(all_cases, tmp_path, "rows", "rows_declared")
    found = {}
    for fault in ("", "rows", "rebuild"):
        done, records = replay_on_double(tmp_path, place, "-k", "engine", CONFORMANCE_DOUBLE_FAULT=fault)
        assert done.code == 1, done.text
        found[fault] = [(record.status, record.error) for record in records]
        if not fault:
            assert [one["batch"] for one in records[0].engine["times"]] == [1, 4]
    assert found[""] == [("passed", None), ("xpassed", None)]
    assert found["rows"] == [("failed", "RowsDiffer"), ("xfailed", "RowsDiffer")]
    assert found["rebuild"][0] == ("failed", "RebuildDiffers")


def test_the_time_limit_of_a_replay_is_that_of_its_option(bundle):
    code, records = replay(bundle, "--runtime", "onnxruntime", "--cell-timeout", "1e-9")
    assert (code, {record["error"] for record in records.values()}) == (1, {"Timeout"})


@pytest.mark.parametrize("arguments, code, status", [((), 5, "skipped"), (("--require",), 1, "failed")])
def test_a_host_that_cannot_run_tensorrt_skips_and_says_why_and_fails_where_it_is_required(
    packed, tmp_path, arguments, code, status
):
    ended, records = replay(packed, *arguments)
    assert ended == code
    assert {(one["status"], "tensorrt is not installed" in one["reason"]) for one in records.values()} == {
        (status, True)
    }
    # and where only TensorRT itself finds something lacking: the parent of the workers sees a GPU and a driver
    done, found = replay_on_double(tmp_path, packed, *arguments, CONFORMANCE_DOUBLE_FAULT="olddriver")
    assert {(one.status, "cannot use the GPU" in one.reason) for one in found} == {(status, True)}
    assert done.code == code, done.text


# ---- bad input ----------------------------------------------------------------------------------------------
def test_a_selection_of_nothing_is_an_error(bundle, tmp_path, capsys):
    assert cli.main(["replay", str(bundle), "-k", "nothing like it"]) == 2
    assert "none of its 4 cells of tensorrt is selected" in capsys.readouterr().err
    edit_entries(bundle, lambda entry: entry.update(runtimes=["tensorrt"]))
    assert cli.main(["replay", str(bundle), "--runtime", "onnxruntime"]) == 2
    assert "none of its 0 cells of onnxruntime" in capsys.readouterr().err
    code, _ = pack(tmp_path / "nothing", BODY.replace(", tensorrt", ""))
    assert code == 2
    assert "does a case name it under runtimes:?" in capsys.readouterr().err


def test_a_folder_with_other_things_is_not_overwritten(tmp_path, capsys):
    place = tmp_path / "bundle"
    place.mkdir()
    (place / "thesis.txt").write_text("years of work")
    code, _ = pack(tmp_path, BODY)
    assert code == 2
    assert "not empty and not a bundle" in capsys.readouterr().err
    assert (place / "thesis.txt").read_text() == "years of work"


# ---- what a failing cell leaves -----------------------------------------------------------------------------
ID = "accuracy[planted-torchscript-op17-onnxruntime-fp32]"


def test_a_failing_cell_leaves_a_bundle_that_shows_the_failure_without_pytorch_until_it_is_gone(tmp_path):
    write_case(tmp_path / "cases", WRONG_BODY, WRONG)
    done = run_suite(tmp_path)
    record = done.records[ID]
    assert (record["status"], record["fault"]) == ("failed", "case")
    assert f"conformance replay {record['bundle']} --runtime onnxruntime" in done.failure(ID)
    assert str(record["bundle"]) in done.text
    bundle = Bundle(tmp_path / record["bundle"])
    (entry,) = bundle.entries
    assert len(entry.sets) == 1 and entry.own_code == ["aten::asinh"]
    code, records = replay(bundle.folder, "--runtime", "onnxruntime")
    (again,) = records.values()
    wrong = (record["id"], "compare", "WrongValue", "exporter")
    assert (code, again["id"], again["stage"], again["error"], again["fault"]) == (1, *wrong)
    assert again["draw"]["dims"] == record["draw"]["dims"]
    # With the right model in its place the bundle passes. One example could not tell outputs of another one apart,
    # and is not asked to.
    write_case(tmp_path / "cases", WRONG_BODY, WRONG.replace("'Sin'", "'Asinh'"))
    right = run_suite(tmp_path, "-k", "export").records["export[planted-torchscript-op17]"]["graph"]["sha"]
    models = (tmp_path / ".conformance" / "models").glob("*/model.onnx")
    (model,) = (one for one in models if right in (one.parent / "meta.json").read_text())
    target = bundle.model(entry)
    target.unlink()  # it may be a hard link to the store's
    target.write_bytes(model.read_bytes())
    code, records = replay(bundle.folder, "--runtime", "onnxruntime")
    assert (code, [one["examples"] for one in records.values()]) == (0, [1])


def test_a_cell_that_fails_as_declared_leaves_none(tmp_path):
    declared = FAILS.format(when="check: accuracy", stage="compare", more=", error: WrongValue")
    write_case(tmp_path / "cases", say(WRONG_BODY, declared), WRONG)
    assert run_suite(tmp_path).records[ID]["status"] == "xfailed"
    assert not (tmp_path / ".conformance" / "failing").exists()
