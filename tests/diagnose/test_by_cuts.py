"""A defect of OpenVINO on an ONNX model: the node is found by cuts, and a script of OpenVINO alone shows it."""

import contextlib

import numpy as np
import onnx
import pytest

from conformance.case.plan.catalogue import plan
from conformance.diagnose.smallest.model_script import reproduction
from conformance.diagnose.smallest.model_trial import ModelFailure, ModelTrials
from conformance.diagnose.smallest.reproduction import LIVES, shows
from conformance.results.records.findings import findings
from conformance.runtimes.onnxgraph.cut import Cut
from tests.kit.cases import load_case
from tests.kit.models import model_of
from tests.kit.runtimes import replaced_runtime

NET = """net (float[n, 6] x) => (float[n, 6] y) {
    [first] a = Tanh (x)
    [second] b = Sin (a)
    [third] c = Add (a, b)
    [fourth] y = Abs (c)
}"""
BODY = """
onnx: net.onnx
dims: {n: 1..4}
runtimes: [onnxruntime, openvino]
specials: false
"""


def merged(original):
    """A runtime that is wrong where it merges a Sin with the Add behind it."""

    @contextlib.contextmanager
    def opened(model, libraries, **options):
        kinds = {node.op_type for node in onnx.load(model).graph.node}
        shown = "b" in {output.name for output in onnx.load(model).graph.output}
        with original(model, libraries, **options) as session:
            run = session.run
            if {"Sin", "Add"} <= kinds and not shown:
                session.run = lambda inputs: [array + np.float32(0.5) for array in run(inputs)]
            yield session

    return opened


def records_of(bench, folder):
    onnx.save(model_of(NET), folder / "net.onnx")
    cells = [cell for cell in plan(load_case(folder, BODY)) if cell.check == "accuracy"]
    return [bench.run_cell(cell, examples=2, smallest=True, smallest_seconds=10) for cell in cells]


def test_the_node_and_the_smallest_model_of_a_defect_of_openvino(bench, tmp_path):
    with replaced_runtime(merged, "openvino"):
        sound, wrong = records_of(bench, tmp_path)
    assert (sound.status, wrong.status, wrong.fault) == ("passed", "failed", "runtime")
    place = wrong.parts_at
    assert (place["node"], place["operator"], place["how"]) == ("third", "Add", "parts")
    (found,) = findings([sound, wrong])
    assert (found.key.component, found.key.by, found.key.of) == ("runtime", "operator", "Add")
    assert {*wrong.smallest["operators"]} == {"Sin", "Add"} and wrong.smallest["bundle"]
    assert wrong.smallest["why_not"] == "the outputs are right"  # as the plant is not in the process of the script


def test_a_sound_openvino_has_no_node(bench, tmp_path):
    assert all(record.status == "passed" and record.parts_at is None for record in records_of(bench, tmp_path))


@pytest.mark.parametrize("wrong", [True, False])
def test_the_script_runs_openvino_alone(tmp_path, wrong):
    cut = Cut(model_of("m (float[n] x) => (float[n] y) { y = Sin (x) }"), {"x": np.arange(3, dtype=np.float32)})
    right = np.sin(cut.feeds["x"]) + (np.float32(0.25) if wrong else np.float32(0))
    failure = ModelFailure("values", "onnxruntime-unoptimized", 1e-3, runtime="openvino")
    about = reproduction(cut, failure, [right])
    assert about is not None and "onnxruntime" not in about.script and "import openvino" in about.script
    assert about.packages == ("openvino", "onnx", "numpy") and "optimizer" not in about.title
    file = tmp_path / "repro.py"
    file.write_text(about.script)
    lives, told = shows(file, 120)
    assert lives is wrong and (LIVES in told) is wrong, told
    in_bundle = reproduction(cut, failure, [np.random.default_rng(0).standard_normal(99)])  # too many to write out
    assert in_bundle is not None and "output_{n}.pb" in in_bundle.script


def test_the_dtypes_of_openvino_are_its_own():
    """Its outputs count by their values, as they do where it is a witness."""
    cut = Cut(model_of("m (int64[n] x) => (int64[n] y) { y = Neg (x) }"), {"x": np.arange(4)})
    failure = ModelFailure("WrongDtype", "onnxruntime-unoptimized", 1e-3, runtime="openvino")

    def narrowed(original):
        @contextlib.contextmanager
        def opened(model, libraries, **options):
            with original(model, libraries, **options) as session:
                run = session.run
                session.run = lambda inputs: [array.astype(np.int32) for array in run(inputs)]
                yield session

        return opened

    with replaced_runtime(narrowed, "openvino"):
        assert not ModelTrials(failure, float("inf")).fails(cut)
