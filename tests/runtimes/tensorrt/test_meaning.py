"""The check ``meaning``: whose fault it is, at which node, and what it is not."""

import subprocess
import sys
from pathlib import Path

import pytest

from conformance.case.plan.expected import owed
from conformance.runtimes import registry
from conformance.runtimes.tensorrt.network import evaluation
from conformance.runtimes.tensorrt.rtx import absence
from tests.kit.bundles import replay
from tests.kit.cases import details, say, verdict, write_case
from tests.kit.runs import run_suite
from tests.runtimes.tensorrt.support import LINEAR, PRECISIONS, PYTHON

pytestmark = pytest.mark.skipif(absence() is not None, reason=f"{absence()}")
SELU = say(
    'forward: "F.selu(x * 2) + 1"', 'inputs: {x: "float32[batch, 3]"}', "dims: {batch: 1..4}",
    "runtimes: [onnxruntime, tensorrt]", "export: {dynamo: [20]}",
)  # fmt: skip
CHECK = {"check": "meaning"}


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_a_model_that_is_understood_passes_and_says_what_computed_it(bench, precision):
    record = bench.run_cell(bench.cell(say(LINEAR, PRECISIONS), PYTHON, **CHECK, precision=precision), examples=4)
    assert verdict(record) == ("passed", None, None, None) and record.examples >= 4, record.reason
    (said,) = (line for line in details(record) if line.startswith("computed by NumPy"))
    assert said.endswith("made; no kernel of TensorRT ran") and record.compiled is None


def test_one_that_is_not_is_the_parser_s_fault_at_the_node_with_its_line(bench):
    record = bench.run_cell(bench.cell(SELU, **CHECK), examples=4)
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    assert (record.parts_at["how"], record.parts_at["operator"]) == ("parsed", "Selu")
    assert "planted.yaml:1" in record.parts_at["line"]
    assert any("means something else" in line or "mean something else" in line for line in details(record))


def test_it_leaves_a_script_for_nvidia_and_a_bundle_that_fails_alike(bench):
    record = bench.run_cell(bench.cell(SELU, **CHECK), examples=4, smallest=True)
    script = Path(record.smallest["repro"]).read_text()
    assert len(script.splitlines()) <= 15 and "Selu" in script and "conformance" not in script
    done = subprocess.run([sys.executable, record.smallest["repro"]], capture_output=True, text=True, check=True)
    assert "'alpha': 1.6732000" in done.stdout and "'beta': 1.0506" in done.stdout
    assert any(line.endswith("to report: the script itself") for line in details(record))
    code, records = replay(Path(record.bundle), "--runtime", registry.RTX)
    found = {one["check"]: (one["status"], one["error"]) for one in records.values()}
    assert code == 1 and found == {
        "parse": ("passed", None), "build": ("passed", None), "meaning": ("failed", "WrongValue"),
    }  # fmt: skip


def test_layers_that_lose_digits_alone_mean_the_same(bench):
    """Celu becomes exp(x) - 1, of which float32 has no digits left near zero."""
    body = SELU.replace("F.selu(x * 2) + 1", "F.celu(x)")
    record = bench.run_cell(bench.cell(body, **CHECK), examples=12)
    assert (record.status, record.doubted) == ("skipped", "WrongValue"), record.reason
    assert "right where its layers are computed in float64, and loses digits" in record.reason


def test_it_can_be_declared(bench):
    entry = "{when: {runtime: tensorrt-rtx}, stage: compare, error: WrongValue, because: rounded, fault: runtime}"
    fails = say(SELU, f"fails: [{entry}]")
    record = bench.run_cell(bench.cell(fails, **CHECK), examples=4)
    assert (record.status, record.fault) == ("xfailed", "runtime")


@pytest.mark.parametrize("which", ["", ", precision: fp16", ", values: large"])
def test_what_is_declared_of_values_is_owed_where_they_are_computed(bench, which):
    entry = f"{{when: {{runtime: tensorrt-rtx{which}}}, stage: compare, error: WrongValue, because: rounded}}"
    precision = "fp16" if "fp16" in which else "fp32"
    cells = [cell for cell in bench.cells(say(SELU, "precisions: {fp16: {}}", f"fails: [{entry}]"))
             if cell.check in ("parse", "build", "meaning") and cell.precision == precision]  # fmt: skip
    assert {cell.check: owed(cell.case.says.fails[0], cell) for cell in cells} == {
        "parse": False, "build": False, "meaning": True,
    }  # fmt: skip


def test_a_model_that_the_exporter_made_wrong_is_not_the_parser_s_fault(bench):
    """Other runtimes give its values too."""
    body = say(
        'forward: "x + float(x.shape[0])"', 'inputs: {x: "float32[batch, 3]"}', "dims: {batch: 1..4}",
        "runtimes: [onnxruntime, tensorrt]", "export: {torchscript: [17]}",
    )  # fmt: skip
    record = bench.run_cell(bench.cell(body, **CHECK), examples=4)
    assert (record.status, record.doubted) == ("skipped", "WrongValue"), record.reason
    assert "no other runtime shows that the model is right" in record.reason


def test_a_model_that_the_parser_refuses_is_left_to_parse(bench):
    body = SELU.replace("F.selu(x * 2) + 1", "torch.linalg.det(x[:, :, None] * x[:, None])")
    record = bench.run_cell(bench.cell(body, **CHECK), examples=4)
    assert record.status == "skipped" and "which the check parse is about" in record.reason


@pytest.fixture
def uncovered(monkeypatch):
    """No activation can be computed here."""
    known = {kind: function for kind, function in evaluation.KINDS.items() if kind != "ACTIVATION"}
    monkeypatch.setattr(evaluation, "KINDS", known)


def test_a_layer_that_is_not_covered_accuses_nobody(bench, uncovered):
    body = SELU.replace("F.selu(x * 2)", "F.leaky_relu(x * 2, 0.2)")
    record = bench.run_cell(bench.cell(body, **CHECK), examples=4)
    assert record.status == "skipped" and record.reason.endswith("(ACTIVATION)")


def test_but_for_an_attribute_of_which_the_parser_has_another_default(bench, uncovered):
    record = bench.run_cell(bench.cell(SELU, **CHECK), examples=4)
    assert verdict(record) == ("failed", "run", "UnreadAttribute", "runtime")
    assert "of Selu is written out with ONNX's own default" in record.reason


def test_its_examples_are_counted_apart_and_it_is_no_tensorrt(tmp_path):
    write_case(tmp_path / "cases", LINEAR, PYTHON)
    done = run_suite(tmp_path, "--isolation", "none", "--runtime", f"tensorrt,{registry.RTX}", "-k", "fp32",
                     "--require", "tensorrt")  # fmt: skip
    found = {(one["runtime"], one["check"]): one["status"] for one in done.records.values()}
    assert found[registry.RTX, "meaning"] == "passed" and found["tensorrt", "accuracy"] == "failed" and done.code == 1
    assert "0 examples verified, and" in done.text and "of what TensorRT's parser made" in done.text
