"""Bundles: packed with PyTorch, replayed without it, read by ONNX's own test runner."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import subprocess
import sys
import textwrap
import unittest
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from conformance import cli
from conformance.bundle.layout import Bundle
from conformance.records import text
from conformance.records.run_file import read_run
from tests.support import run_suite, say, write_case

BODY = """
forward: torch.sin(x) * w, (x > 0)
inputs:
  x: "float32[batch, 3]"
  w: "float32[]"
dims: {batch: 1..8}
runtimes: [onnx-reference, onnxruntime, tensorrt]
precisions: {fp16: {}}
export: {torchscript: [17]}
"""
NAMES = {"test_accuracy-planted-torchscript-op17", "test_accuracy-planted-torchscript-op17-fp16"}


def pack(folder: Path, body: str = BODY, python: str = "", *arguments: str) -> tuple[int, Path]:
    write_case(folder / "cases", body, python)
    place = folder / "bundle"
    cases, store = str(folder / "cases"), str(folder / "store")
    return cli.main(["pack", str(place), "--cases", cases, "--store", store, *arguments]), place


def replay(place: Path, *arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    report = place.parent / "replayed"
    code = cli.main(["replay", str(place), "--report", str(report), "--store", str(place.parent / "s"), *arguments])
    return code, {record["id"]: record for record in read_run(report)[1]}


@pytest.fixture(scope="module")
def packed(tmp_path_factory) -> Path:
    code, place = pack(tmp_path_factory.mktemp("packed"))
    assert code == 0
    return place


def test_a_bundle_holds_models_examples_and_cells_as_data(packed):
    bundle = Bundle(packed)
    assert {entry.name for entry in bundle.entries} == NAMES
    (fp32, _) = bundle.entries
    assert fp32.build["shapes"]["x"] == [[1, 3], [3, 3], [8, 3]]
    assert fp32.inputs == ["x", "w"]
    examples = list(bundle.examples(fp32))
    assert len(examples) == len(fp32.sets) == 16
    assert {example.draw.dims["batch"] for example in examples} >= {1, 8}
    first = examples[0]
    assert first.inputs["w"].shape == ()  # 0-d stays 0-d
    np.testing.assert_allclose(first.wanted[0], np.sin(first.inputs["x"]) * first.inputs["w"], rtol=1e-5, atol=1e-6)
    assert first.exact is not None
    assert first.exact[0].dtype == np.float64
    assert len(first.conditioning or []) == 2
    assert bundle.environment["versions"]["torch"]


@pytest.mark.parametrize("runtime", ["onnxruntime", "onnx-reference"])
def test_a_bundle_replays_with_the_same_ids_and_verdicts_as_in_the_suite(packed, runtime):
    code, records = replay(packed, "--runtime", runtime)
    assert code == 0
    assert all(sum(record["histogram"]["counts"]) == record["examples"] for record in records.values())
    # ONNX's evaluator runs no converted models, here as in the suite
    precisions = {"fp32", "fp16"} if runtime == "onnxruntime" else {"fp32"}
    assert records.keys() == {f"accuracy[planted-torchscript-op17-{runtime}-{one}]" for one in precisions}
    assert all(record["status"] == "passed" and record["examples"] >= 12 for record in records.values())
    assert all(record["command"] and record["source"]["line"] == 1 for record in records.values())


# onnx computes its own test data when its runner is imported
@pytest.mark.filterwarnings(r"ignore::RuntimeWarning:onnx\.backend\.test\.case")
def test_onnx_s_own_runner_reads_and_passes_a_bundle(packed):
    from onnx.backend.base import Backend, BackendRep
    from onnx.backend.test.loader import load_model_tests
    from onnx.backend.test.runner import Runner
    from onnx.reference import ReferenceEvaluator

    class Prepared(BackendRep):
        def __init__(self, model: Any) -> None:
            self.evaluator = ReferenceEvaluator(model)

        def run(self, inputs: Any, **_: Any) -> Any:
            return tuple(self.evaluator.run(None, dict(zip(self.evaluator.input_names, inputs, strict=True))))

    class Evaluator(Backend):
        @classmethod
        def prepare(cls, model: Any, device: str = "CPU", **_: Any) -> Prepared:
            return Prepared(model)

        @classmethod
        def supports_device(cls, device: str) -> bool:
            return device == "CPU"

    tests = load_model_tests(str(packed), "cells")
    assert {test.name for test in tests} == NAMES
    runner = Runner(Evaluator, __name__)
    runner.include("planted")
    for test in tests:
        runner._add_model_test(test, "Cells")
    result = unittest.TextTestRunner(stream=io.StringIO()).run(runner.test_suite)
    assert result.testsRun - len(result.skipped) == 2
    assert result.wasSuccessful(), result.failures + result.errors


def test_a_replayed_run_is_compared_and_reported_like_any(packed, tmp_path, capsys):
    for name, runtime in (("one", "onnxruntime"), ("two", "onnx-reference")):
        assert cli.main(["replay", str(packed), "--runtime", runtime, "--report", str(tmp_path / name)]) == 0
    assert cli.main(["diff", str(tmp_path / "one"), str(tmp_path / "one")]) == 0
    capsys.readouterr()
    assert cli.main(["diff", str(tmp_path / "one"), str(tmp_path / "two")]) == 1  # the cells of the other vanished
    assert "in the earlier run only: 2" in capsys.readouterr().out
    replay_flags = read_run(tmp_path / "two")[0]["environment"]
    assert (replay_flags["flags"], replay_flags["command"]) == ([], sys.argv[1:])
    assert cli.main(["report", str(tmp_path / "one")]) == 0
    assert "planted-torchscript-op17-onnxruntime-fp16" in (tmp_path / "one" / "report.html").read_text()


def test_what_a_replay_of_some_cells_lacks_has_not_vanished(packed, tmp_path):
    lines = {}
    for name, arguments in (("all", ()), ("some", ("-k", "fp16"))):
        command = ["replay", str(packed), "--runtime", "onnxruntime", "--report", name, *arguments]
        subprocess.run([sys.executable, "-m", "conformance", *command], cwd=tmp_path, check=True, capture_output=True)
        done = subprocess.run(
            [sys.executable, "-m", "conformance", "diff", "all", name], cwd=tmp_path, capture_output=True, text=True,
            check=True,
        )  # fmt: skip
        lines[name] = done.stdout
    assert "limited by" not in lines["all"]
    assert "limited by -k fp16" in lines["some"]


# ---- without PyTorch ----------------------------------------------------------------------------------------

FORBIDDEN = ("torch", "torchvision", "pydantic", "pytest", "hypothesis", "ruamel", "rich", "onnxscript")


def test_a_replay_needs_neither_torch_nor_pytest_nor_what_reads_case_files(packed, tmp_path):
    """In all its processes: the modules are forbidden by a sitecustomize that each of them runs."""
    code = f"import sys\nfor name in {FORBIDDEN!r}:\n    sys.modules[name] = None\n"
    (tmp_path / "sitecustomize.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-m", "conformance", "replay", str(packed), "--runtime", "onnxruntime", "--report", "out"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 cells: 2 passed" in done.stdout
    probe = [sys.executable, "-c", "import torch"]
    blocked = subprocess.run(
        probe, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, check=False
    )
    assert blocked.returncode != 0  # or the test would show nothing


# ---- defects are found in a replay --------------------------------------------------------------------------


def _spoil(place: Path, name: str, change: Any) -> None:
    from onnx import TensorProto, numpy_helper

    for file in (place / "cells").glob(f"*/test_data_set_*/{name}.pb"):
        array = numpy_helper.to_array(TensorProto.FromString(file.read_bytes()))
        file.write_bytes(numpy_helper.from_array(change(array.copy())).SerializeToString())


def test_a_runtime_that_is_wrong_is_found_and_blamed(tmp_path):
    """As seen from the bundle: its right answers are all off by a little."""
    _, place = pack(tmp_path)
    for name in ("output_0", "exact_0"):
        _spoil(place, name, lambda array: array * array.dtype.type(1.01))
    code, records = replay(place, "--runtime", "onnxruntime")
    assert code == 1
    record = records["accuracy[planted-torchscript-op17-onnxruntime-fp32]"]
    assert (record["status"], record["stage"], record["error"]) == ("failed", "compare", "WrongValue")
    assert any("is wrong too" in line for line in text.details(record))
    assert record["draw"]["dims"]
    answers = {witness["runtime"]: witness["answer"] for witness in record["witnesses"]}
    assert {*answers} >= {"onnxruntime-unoptimized", "onnx-reference"} and {*answers.values()} == {"wrong"}
    assert record["worst"]["ratio"] > 100
    half = records["accuracy[planted-torchscript-op17-onnxruntime-fp16]"]
    assert (half["status"], half["fault"]) == ("failed", "runtime")


def test_another_shape_count_or_dtype_is_found(tmp_path):
    _, place = pack(tmp_path)
    _spoil(place, "output_0", lambda array: array[:, :2])
    assert (
        replay(place, "--runtime", "onnxruntime")[1]["accuracy[planted-torchscript-op17-onnxruntime-fp32]"]["error"]
        == "WrongShape"
    )
    for file in (place / "cells").glob("*/test_data_set_*/output_1.pb"):
        file.unlink()
    _, records = replay(place, "--runtime", "onnxruntime")
    assert {record["error"] for record in records.values()} == {"WrongCount"}


def test_examples_that_could_not_fail_are_not_a_pass(tmp_path):
    _, place = pack(tmp_path)
    head = json.loads((place / "bundle.json").read_text())
    for entry in head["entries"]:  # with such a tolerance zeros would be right too
        entry["judge"] = {
            "kind": "tolerance", "any_order": [False, False],
            "tolerances": [{"rtol": 1e9, "atol": 1e9, "absolute": True}, None],
        }  # fmt: skip
    (place / "bundle.json").write_text(json.dumps(head))
    code, records = replay(place, "--runtime", "onnxruntime")
    assert code == 1
    assert {record["error"] for record in records.values()} == {"Vacuous"}


def test_a_vacuous_cell_is_not_packed(tmp_path):
    code, place = pack(tmp_path, "forward: x * 0\n" + BODY.split("\n", 2)[2].replace('  w: "float32[]"\n', ""))
    assert code == 1
    assert Bundle(place).entries == []


def test_declared_failures_travel_with_the_bundle(tmp_path):
    declared = """
    fails: [{when: {runtime: onnxruntime, precision: fp32}, stage: load, error: InvalidGraph, because: a reason}]
    """
    _, place = pack(tmp_path, say(BODY, declared))
    code, records = replay(place, "--runtime", "onnxruntime")
    assert code == 1
    assert records["accuracy[planted-torchscript-op17-onnxruntime-fp32]"]["status"] == "xpassed"
    bundle = Bundle(place)
    model = onnx.load(bundle.model(bundle.entries[0]))
    model.graph.node[0].op_type = "NoSuchOperator"
    bundle.model(bundle.entries[0]).unlink()
    bundle.model(bundle.entries[0]).write_bytes(model.SerializeToString())
    _, records = replay(place, "--runtime", "onnxruntime")
    found = records["accuracy[planted-torchscript-op17-onnxruntime-fp32]"]
    assert (found["status"], found["stage"], found["reason"]) == ("xfailed", "load", "a reason")


def test_draws_at_which_a_runtime_is_declared_to_fail_are_not_run_by_it(tmp_path):
    declared = """
    fails: [{when: {runtime: onnxruntime, at: {batch: 8}, precision: fp32}, stage: compare, because: a reason}]
    """
    _, place = pack(tmp_path, say(BODY, declared), "", "--precision", "fp32")
    (entry,) = Bundle(place).entries
    apart = ["onnxruntime"]
    assert {one["dims"]["batch"] for one in entry.sets if one["apart"] == apart} == {8}
    _, records = replay(place, "--runtime", "onnxruntime")
    (record,) = records.values()
    assert record["status"] == "passed"
    assert record["examples"] < len(entry.sets)
    assert any("declared to fail, and not run" in line for line in text.details(record))
    (other,) = replay(place, "--runtime", "onnx-reference")[1].values()
    assert other["examples"] + other["ill_conditioned"] == len(entry.sets)


def test_a_declared_wrong_value_may_be_missing_in_the_packed_examples(tmp_path):
    declared = """
    fails: [{when: {runtime: onnxruntime, precision: fp32}, stage: compare, error: WrongValue, because: a reason}]
    """
    _, place = pack(tmp_path, say(BODY, declared), "", "--precision", "fp32")
    assert [one["status"] for one in replay(place, "--runtime", "onnxruntime")[1].values()] == ["passed"]
    _spoil(place, "output_0", lambda array: array * np.float32(1.0001))
    _spoil(place, "exact_0", lambda array: array * 1.0001)
    assert [one["status"] for one in replay(place, "--runtime", "onnxruntime")[1].values()] == ["xfailed"]


def test_a_runtime_that_the_case_does_not_have_is_not_run(tmp_path, capsys):
    _, place = pack(tmp_path, BODY.replace("[onnx-reference, onnxruntime, tensorrt]", "tensorrt"))
    assert cli.main(["replay", str(place), "--runtime", "onnxruntime"]) == 2
    assert "none of its 0 cells of onnxruntime" in capsys.readouterr().err


def test_a_process_that_dies_is_the_verdict_of_its_cell(tmp_path):
    doubles = Path(__file__).parent / "doubles"
    _, place = pack(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "conformance", "replay", str(place), "--report", "out"], cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(doubles), "CONFORMANCE_DOUBLE_FAULT": "crash"}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    records = read_run(tmp_path / "out")[1]
    assert [(record["status"], record["signal"]) for record in records] == [("failed", "SIGABRT")] * 4


def test_a_bundle_on_a_host_with_tensorrt_gives_records_of_tensorrt(packed, tmp_path):
    doubles = Path(__file__).parent / "doubles"
    done = subprocess.run(
        [sys.executable, "-m", "conformance", "replay", str(packed), "--report", "out", "--require"], cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(doubles)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    header, records = read_run(tmp_path / "out")
    assert header["environment"]["gpu"]["name"] == "TensorRT double (no GPU)"
    assert header["environment"]["packed"]["versions"]["torch"]
    assert [(record["check"], record["status"]) for record in records] == [
        ("accuracy", "passed"), ("engine", "passed"), ("accuracy", "passed"), ("engine", "passed"),
    ]  # fmt: skip
    engine = records[1]["engine"]
    assert engine["layers"]
    assert [one["batch"] for one in engine["times"]] == []  # the case has an input without rows


@pytest.mark.parametrize("fault, error", [("rows", "RowsDiffer"), ("rebuild", "RebuildDiffers")])
def test_what_only_an_engine_can_show_is_found_in_a_replay_too(tmp_path, fault, error):
    body = BODY.replace("* w, (x > 0)", "").replace('  w: "float32[]"\n', "")
    _, place = pack(tmp_path, body, "", "--precision", "fp32")
    doubles = Path(__file__).parent / "doubles"
    found = {}
    for planted in ("", fault):
        done = subprocess.run(
            [sys.executable, "-m", "conformance", "replay", str(place), "--report", "out", "-k", "engine"],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(doubles), "CONFORMANCE_DOUBLE_FAULT": planted},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        (found[planted],) = read_run(tmp_path / "out")[1]
        assert done.returncode == (1 if planted else 0), done.stdout + done.stderr
    assert [one["batch"] for one in found[""]["engine"]["times"]] == [1, 4]
    assert (found[fault]["status"], found[fault]["error"]) == ("failed", error)


def test_a_host_without_tensorrt_skips_and_says_why(packed):
    code, records = replay(packed)
    assert code == 5
    assert {record["status"] for record in records.values()} == {"skipped"}
    assert all("tensorrt is not installed" in record["reason"] for record in records.values())
    code, records = replay(packed, "--require")
    assert code == 1
    assert {record["status"] for record in records.values()} == {"failed"}


def test_what_only_tensorrt_itself_finds_lacking_is_a_failure_too_where_it_is_required(packed, tmp_path):
    """The parent of the workers sees a GPU, a driver and TensorRT."""
    doubles = Path(__file__).parent / "doubles"
    for arguments, code, status in (((), 5, "skipped"), (("--require",), 1, "failed")):
        done = subprocess.run(
            [sys.executable, "-m", "conformance", "replay", str(packed), "--report", "out", *arguments], cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(doubles), "CONFORMANCE_DOUBLE_FAULT": "olddriver"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        records = read_run(tmp_path / "out")[1]
        assert {(one["status"], "cannot use the GPU" in one["reason"]) for one in records} == {(status, True)}
        assert done.returncode == code, done.stdout + done.stderr


def test_what_is_declared_of_the_check_engine_is_expected_in_a_replay(tmp_path):
    declared = """
    fails: [{when: {check: engine}, stage: compare, error: RowsDiffer, because: a reason}]
    """
    body = BODY.replace("* w, (x > 0)", "").replace('  w: "float32[]"\n', "")
    _, place = pack(tmp_path, say(body, declared), "", "--precision", "fp32")
    doubles = Path(__file__).parent / "doubles"
    found = {}
    for fault in ("rows", ""):
        subprocess.run(
            [sys.executable, "-m", "conformance", "replay", str(place), "--report", "out", "-k", "engine"],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(doubles), "CONFORMANCE_DOUBLE_FAULT": fault},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        (found[fault],) = read_run(tmp_path / "out")[1]
    assert found["rows"]["status"] == "xfailed"
    assert found[""]["status"] == "xpassed"


def test_a_lost_gpu_is_told_in_the_words_of_cuda(tmp_path):
    doubles = Path(__file__).parent / "doubles"
    _, place = pack(tmp_path)
    subprocess.run(
        [sys.executable, "-m", "conformance", "replay", str(place), "--report", "out", "-k", "fp32"], cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(doubles), "CONFORMANCE_DOUBLE_ILLEGAL": "Sin"}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    for record in read_run(tmp_path / "out")[1]:
        assert (record["status"], record["signal"], record["stage"]) == ("failed", "SIGABRT", "run")
        assert "an illegal memory access was encountered" in text.details(record)[0]


# ---- bad input ----------------------------------------------------------------------------------------------


def _damaged(place: Path, what: str) -> None:
    head = place / "bundle.json"
    if what == "no head":
        head.unlink()
    elif what == "half a head":
        head.write_text(head.read_text()[:100])
    elif what == "another format":
        head.write_text(head.read_text().replace('"format": 1', '"format": 99'))


@pytest.mark.parametrize("what, words", [
    ("no head", "there is no bundle here"), ("half a head", "is damaged"),
    ("another format", "is not a bundle of format 1"),
])  # fmt: skip
def test_what_is_no_bundle_is_one_clear_line(tmp_path, capsys, what, words):
    _, place = pack(tmp_path)
    _damaged(place, what)
    assert cli.main(["replay", str(place)]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said


@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_a_damaged_example_fails_its_cell_and_names_the_folder(tmp_path, damage):
    _, place = pack(tmp_path)
    for file in (place / "cells").glob("*/test_data_set_3/input_0.pb"):
        file.write_bytes(file.read_bytes()[:-2]) if damage == "cut" else file.unlink()
    code, records = replay(place, "--runtime", "onnxruntime")
    assert code == 1
    assert {record["error"] for record in records.values()} == {"BadBundle"}
    assert all("test_data_set_3" in record["reason"] for record in records.values())


def test_a_selection_of_nothing_is_an_error(packed, capsys):
    assert cli.main(["replay", str(packed), "-k", "nothing like it"]) == 2
    assert "none of its 4 cells of tensorrt is selected" in capsys.readouterr().err


def test_a_folder_with_other_things_is_not_overwritten(tmp_path, capsys):
    place = tmp_path / "bundle"
    place.mkdir()
    (place / "thesis.txt").write_text("years of work")
    code, _ = pack(tmp_path)
    assert code == 2
    assert "not empty and not a bundle" in capsys.readouterr().err
    assert (place / "thesis.txt").read_text() == "years of work"


def test_packing_nothing_is_an_error(tmp_path, capsys):
    code, _ = pack(tmp_path, BODY.replace(", tensorrt", ""))
    assert code == 2
    assert "does a case name it under runtimes:?" in capsys.readouterr().err


# ---- what a failing cell leaves -----------------------------------------------------------------------------


def test_a_failing_cell_leaves_a_bundle_that_shows_the_failure_without_pytorch(tmp_path):
    python = textwrap.dedent(
        """
        import torch
        def symbolic(g, x):
            return g.op("Sin", x)
        """
    )
    body = """
    forward: torch.asinh(x)
    inputs: {x: "float32[batch, 3]"}
    dims: {batch: 1..8}
    runtimes: onnxruntime
    export: {torchscript: {opsets: [17], symbolics: {aten::asinh: beside.symbolic}}}
    """
    write_case(tmp_path / "cases", body, python)
    done = run_suite(tmp_path)
    record = done.records["accuracy[planted-torchscript-op17-onnxruntime-fp32]"]
    assert (record["status"], record["fault"]) == ("failed", "exporter")
    place = tmp_path / record["bundle"]
    assert f"conformance replay {record['bundle']} --runtime onnxruntime" in done.text
    (entry,) = Bundle(place).entries
    assert len(entry.sets) == 1
    assert entry.own_code == ["aten::asinh"]
    code, records = replay(place, "--runtime", "onnxruntime")
    (again,) = records.values()
    assert code == 1
    assert (again["id"], again["stage"], again["error"], again["fault"]) == (
        record["id"], "compare", "WrongValue", "exporter",
    )  # fmt: skip
    assert again["draw"]["dims"] == record["draw"]["dims"]


def test_a_reproduction_whose_failure_is_gone_passes(tmp_path):
    """One example could not tell outputs of another one apart, and is not asked to."""
    body = """
    forward: torch.asinh(x)
    inputs: {x: "float32[batch, 3]"}
    dims: {batch: 1..8}
    runtimes: onnxruntime
    specials: false
    export: {torchscript: {opsets: [17], symbolics: {aten::asinh: beside.symbolic}}}
    """
    write_case(tmp_path / "cases", body, "def symbolic(g, x):\n    return g.op('Sin', x)\n")
    record = run_suite(tmp_path).records["accuracy[planted-torchscript-op17-onnxruntime-fp32]"]
    place = tmp_path / record["bundle"]
    (tmp_path / "cases" / "beside.py").write_text("def symbolic(g, x):\n    return g.op('Asinh', x)\n")
    right = run_suite(tmp_path).records["export[planted-torchscript-op17]"]["graph"]["sha"]
    models = (tmp_path / ".conformance" / "models").glob("*/model.onnx")
    (model,) = (one for one in models if right in (one.parent / "meta.json").read_text())
    bundle = Bundle(place)
    target = bundle.model(bundle.entries[0])
    target.unlink()
    target.write_bytes(model.read_bytes())
    code, records = replay(place, "--runtime", "onnxruntime")
    assert code == 0, records
    assert [one["examples"] for one in records.values()] == [1]


def test_a_cell_that_fails_as_declared_leaves_none(tmp_path):
    body = """
    forward: torch.asinh(x)
    inputs: {x: "float32[batch, 3]"}
    dims: {batch: 1..8}
    runtimes: onnxruntime
    export: {torchscript: {opsets: [17], symbolics: {aten::asinh: beside.symbolic}}}
    fails: [{when: {check: accuracy}, stage: compare, error: WrongValue, because: it is a sine}]
    specials: false
    """
    write_case(tmp_path / "cases", body, "def symbolic(g, x):\n    return g.op('Sin', x)\n")
    done = run_suite(tmp_path)
    assert done.records["accuracy[planted-torchscript-op17-onnxruntime-fp32]"]["status"] == "xfailed"
    assert not (tmp_path / ".conformance" / "failing").exists()


def test_entries_are_plain_data(packed):
    for entry in Bundle(packed).entries:
        assert json.loads(json.dumps(dataclasses.asdict(entry))) == dataclasses.asdict(entry)
