"""Plants defects of which two sides can be accused, and mistakes of the author that look like another's, and checks
who gets the blame."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from conformance.case.files.python import describe
from conformance.case.plan.cell import Cell
from conformance.compare.noise import NOISE_LIMITS, compare_outputs
from conformance.diagnose import explain_failure
from conformance.diagnose.nodes.other_runtime import Asked
from conformance.results.records import matrix
from conformance.results.records.explanation import greatest
from conformance.results.records.record import Record
from conformance.runtimes import onnxreference, onnxruntime, openvino
from tests.kit.cases import PASSED, QUICK, Bench, details, module_of, say, verdict, with_symbolic
from tests.kit.modules import net_of
from tests.kit.planting import planted
from tests.kit.runtimes import Alter
from tests.plants.edits import of_output, times
from tests.plants.planting import after_conversion, exported, exporting
from tests.results.report.support import record as report_record

pytestmark = pytest.mark.own_store

CHECKS = pytest.mark.parametrize("check", ["fidelity", "accuracy"])


def run(bench: Bench, body: str, cell: str, python: str = "") -> Record:
    """The record of a cell by its ``check precision``."""
    cells: dict[str, Cell] = {f"{one.check} {one.precision}": one for one in bench.cells(body, python)}
    return bench.run_cell(cells[cell], examples=2)


# ---- what other runtimes say ---------------------------------------------------------------------------------------
TWO = 'forward: (torch.sin(x), torch.cos(x))\ninputs: {x: "float32[batch, 3]"}\ndims: {batch: 1..4}'


def wrong_in(output: int) -> Alter:
    def alter(inputs, outputs):
        return [one + np.float32(1e-2) if place == output else one for place, one in enumerate(outputs)]

    return alter


def refuse(inputs, outputs):
    raise RuntimeError("planted: not implemented")


FIRST, SECOND = wrong_in(0), wrong_in(1)
WRONG, STOPS = ("failed", "compare", "WrongValue"), ("failed", "run", "RuntimeError")


@pytest.mark.parametrize("optimized, unoptimized, others, error, fault, said", [
    pytest.param(FIRST, SECOND, SECOND, WRONG, "runtime", "agrees with PyTorch", id="wrong in another output"),
    pytest.param(FIRST, FIRST, FIRST, WRONG, "exporter", "is wrong too", id="wrong in the same output"),
    pytest.param(refuse, FIRST, FIRST, STOPS, None, "runs it, but its outputs are wrong", id="run and are wrong"),
    pytest.param(refuse, FIRST, None, STOPS, "runtime", "runs it, but its outputs are wrong", id="one is right"),
])  # fmt: skip
def test_other_runtimes_speak_of_the_output_and_the_stage_that_failed(
    bench, break_opener, optimized, unoptimized, others, error, fault, said
):
    break_opener(onnxruntime, "open_optimized", optimized)
    break_opener(onnxruntime, "open_unoptimized", unoptimized)
    for module in (onnxreference, openvino) if others else ():
        break_opener(module, "open_model", others)
    record = bench.run(TWO)
    assert verdict(record) == (*error, fault)
    assert record.worst is None or record.worst["output"] == 0
    assert f"onnxruntime with its optimizer off: {said}" in details(record)


FLOAT32_ONLY = """
import torch
class Only(torch.nn.Module):
    def forward(self, x):
        if x.dtype == torch.float64:
            raise TypeError("planted: float32 only")
        return torch.sin(x)
"""


@pytest.mark.parametrize("forward, missing", [("module: beside.Only", True), ("forward: torch.sin(x)", False)])
def test_a_failure_says_where_no_float64_form_tells_of_pytorchs_own_rounding(bench, break_opener, forward, missing):
    break_opener(onnxruntime, "open_optimized", FIRST)
    record = bench.run(say(forward, 'inputs: {x: "float32[batch, 3]"}\ndims: {batch: 1..4}'), FLOAT32_ONLY)
    assert verdict(record) == (*WRONG, "runtime")
    told = "the module has no float64 form, so PyTorch's own rounding is not known"
    assert (told in details(record)) is missing


# ---- converted models ----------------------------------------------------------------------------------------------
NET = say("module: beside.Net", 'inputs: {x: "float32[batch, 6]"}', "dims: {batch: 3..4}", "trace: {batch: 4}", QUICK)
PRECISIONS = "precisions: {fp16: {}, int8: {}}"
BAKED_IN = net_of("self.layer(x) + torch.ones(int(x.shape[0]), 6)", layer="Linear(6, 6)")
SOUND = net_of("self.layer(x)", layer="Linear(6, 6)")
TWO_OUTPUTS = net_of("(self.layer(x), x.abs())", layer="Linear(6, 6)")
CONVERTED = pytest.mark.parametrize("precision", ["fp16", "int8"])


@CHECKS
@CONVERTED
def test_a_converted_model_that_stops_where_the_exported_one_does_is_the_exporters_fault(bench, check, precision):
    at_four = "{calibration: {at: {batch: 4}}}"  # where the model runs, so that it can be converted
    record = run(bench, say(NET, f"precisions: {{{precision}: {at_four}}}"), f"{check} {precision}", BAKED_IN)
    assert (record.status, record.stage, record.fault) == ("failed", "run", "exporter")
    assert "the exported fp32 model stops there too" in details(record)


def test_where_it_is_not_known_whether_the_exported_model_runs_nobody_is_accused(bench, monkeypatch):
    monkeypatch.setattr(explain_failure, "ask", lambda *_: Asked(None, "lost", "timeout after 40 s"))
    record = run(bench, say(NET, "precisions: {fp16: {calibration: {at: {batch: 4}}}}"), "accuracy fp16", BAKED_IN)
    assert (record.status, record.stage, record.fault) == ("failed", "run", None)
    said = "whether the exported fp32 model stops there too is not known: its process ended with timeout after 40 s"
    assert said in details(record)


@CHECKS
def test_a_converted_model_that_stops_where_the_exported_one_runs_is_the_precisions_fault(bench, check):
    four_rows = of_output(lambda nodes, name: nodes("Reshape", name, nodes.constant([4, 6], "int64")))
    with planted(after_conversion(four_rows)):
        record = run(bench, say(NET, PRECISIONS), f"{check} fp16", SOUND)
    assert (record.status, record.stage, record.fault) == ("failed", "run", "precision")


def test_the_fault_for_a_lost_output_does_not_follow_from_another_output(bench):
    loose = "tolerance: {int8: {outputs: {0: {sqnr: 1 dB}}, because: planted}}"
    with planted(exported(of_output(times(1.5))), after_conversion(of_output(times(1.4), 1))):
        record = run(bench, say(NET, PRECISIONS, loose), "fidelity int8", TWO_OUTPUTS)
    assert verdict(record) == ("failed", "compare", "LowFidelity", "precision") and record.fidelity["output"] == 1
    assert record.loss["export"] > 100  # of output 1; output 0 has 6 dB there
    assert record.loss["conversion"] == pytest.approx(-20 * np.log10(0.4), abs=0.5)
    assert greatest(record.loss) == "conversion"


def test_what_the_export_loses_is_no_loss_of_the_conversion(bench):
    with planted(exported(of_output(times(1.5)))):
        record = run(bench, say(NET, PRECISIONS), "fidelity int8", SOUND)
    assert verdict(record) == ("failed", "compare", "LowFidelity", "exporter")
    assert record.loss["export"] == pytest.approx(-20 * np.log10(0.5), abs=0.1)
    assert record.loss["conversion"] > 20 and greatest(record.loss) == "export"


# ---- modules that change -------------------------------------------------------------------------------------------
COUNTS = """
import torch
class Counts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))
        self.layer = torch.nn.Linear(3, 3)
    def forward(self, x):
        {body}
        return self.layer(x)
"""
COUNTED = 'module: beside.Counts\ninputs: {x: "float32[batch, 3]"}\ndims: {batch: 1..4}'
RANDOM = ("failed", "declare", "NotDeterministic", "case")


@pytest.mark.parametrize("body, check", [
    ("self.calls += 1", "export"), ("self.calls += 1", "accuracy"), ("self.calls.fill_(1)", "export"),
    ("self.calls = self.calls + 1", "accuracy"),
    ("self.times = getattr(self, 'times', 0) + 1; x = x * self.times", "accuracy"),
    ("self.seen = [*getattr(self, 'seen', []), 2.0]; x = x * sum(self.seen)", "accuracy"),
    ("self.layer.weight.data.mul_(0.5)", "accuracy"),
])  # fmt: skip
def test_a_module_that_a_call_changes_is_compared_as_it_was_built_and_named(bench, body, check):
    record = bench.run(COUNTED, COUNTS.format(body=body), check=check)
    assert verdict(record) == PASSED
    name = next(name for name in ("calls", "times", "seen", "layer.weight") if name.split(".")[-1] in body)
    told = [warning["text"] for warning in record.warnings if warning["error"] == "ChangesItself"]
    assert [f"changes {name};" in text for text in told] == [True] * (name != "seen")


def test_what_such_a_module_computes_is_still_compared(bench):
    """A wrong symbolic is found, and state that no copy has is the case's mistake."""
    body = "self.calls += 1; self.times = getattr(self, 'times', 0) + 1; x = torch.sin(x) * self.times"
    wrong = say(COUNTED, with_symbolic("aten::sin"))
    record = bench.run(wrong, COUNTS.format(body=body) + "\ndef symbolic(g, x):\n    return g.op('Cos', x)\n")
    assert verdict(record) == ("failed", "compare", "WrongValue", "case")
    shared = "type(self).all = getattr(type(self), 'all', 0) + 1; x = x * type(self).all"
    assert verdict(bench.run(COUNTED, COUNTS.format(body=shared))) == RANDOM


def test_an_exporter_that_changes_the_module_is_at_fault(bench):
    def change(reference: Any) -> None:
        with torch.no_grad():
            reference.module.layer.weight += 1

    with planted(exporting(change)):
        record = bench.run(COUNTED, COUNTS.format(body="pass"), check="export")
    assert verdict(record) == ("failed", "export", "ChangedModule", "exporter")


DRIFTS = """
import torch
calls = []
class Drifts(torch.nn.Module):
    def forward(self, x):
        if not torch.jit.is_tracing():
            calls.append(x.numpy().tobytes())
        {before}
        return torch.sin(x) + {more}
"""
DRIFTING = say(module_of("Drifts", shape="batch, 3"), "runtimes: onnxruntime")


@pytest.mark.parametrize("more", [
    "(1 if len(calls) > 12 else 0)", "len(calls) % 2", "int(len(calls) % 3 == 1)", "torch.rand(1)",
])  # fmt: skip
def test_a_module_that_drifts_takes_turns_or_is_random_is_the_cases_mistake(bench, more):
    assert verdict(bench.run(DRIFTING, DRIFTS.format(before="", more=more))) == RANDOM


@pytest.mark.parametrize("after", [0, 2, 4])
def test_a_module_that_ends_its_process_at_some_call_is_the_cases_mistake(bench, after):
    before = f"if len(calls) > {after}: raise SystemExit(3)"
    record = bench.run(DRIFTING, DRIFTS.format(before=before, more=0))
    assert verdict(record) == ("failed", "declare", "SystemExit", "case") and "beside.py" in record.reason


# ---- mistakes of the author ----------------------------------------------------------------------------------------
ASINH = 'forward: torch.asinh(x)\ninputs: {x: "float32[batch, 3]"}\ndims: {batch: 1..4}'
OWN_ASINH = say(ASINH, with_symbolic("aten::asinh"))
MAKE = "def make(shape):\n    return None\n"
MADE = """
forward: torch.sin(x)
inputs: {x: {type: "float32[batch, 3]", values: {python: beside.make}}}
dims: {batch: 1..4}
"""


@pytest.mark.parametrize("body, python, error, parts", [
    pytest.param(OWN_ASINH, "def symbolic(g):\n    return g.op('Asinh', g)\n", "TypeError",
                 ["the symbolic of aten::asinh cannot be called", "argument"], id="a symbolic"),
    pytest.param(MADE, MAKE, "TypeError", ["beside.make cannot be called", "argument"], id="values"),
    pytest.param(TWO.replace("(torch.sin(x), torch.cos(x))", "x.bfloat16()"), "", "NoTensor",
                 ["torch.bfloat16", "convert it"], id="bfloat16"),
    pytest.param(say(TWO, "outputs: [a]"), "", "WrongOutputs",
                 ["outputs declares 1 name, forward returns 2 tensors"], id="too few outputs"),
])  # fmt: skip
def test_a_mistake_of_the_author_is_one_line_about_the_case_in_every_cell(bench, body, python, error, parts):
    for check in ("export", "accuracy"):
        record = bench.run(body, python, check=check)
        assert verdict(record) == ("failed", "declare", error, "case") and "\n" not in record.reason
        assert all(part in record.reason for part in parts)
        assert not any("harness" in line for line in details(record))


def test_a_mistake_inside_the_cases_python_has_its_own_line(bench):
    record = bench.run(MADE, "def make(shape, sizes, rng):\n    return None + 1\n")
    assert verdict(record) == ("failed", "declare", "TypeError", "case")
    assert "beside.py:2" in record.reason and "cannot be called" not in record.reason
    raises = "def symbolic(g, x):\n    raise RuntimeError('planted')\n"
    record = bench.run(OWN_ASINH, raises, check="export")
    assert (record.stage, record.own_code) == ("export", ["beside.symbolic for aten::asinh"])
    body = say(ASINH, "export: {dynamo: {opsets: [20], translations: {aten::asinh: beside.translate}}}")
    record = bench.run(body, 'def translate(x):\n    raise ValueError("planted")\n', check="export")
    assert record.reason == "ConversionError, caused by ValueError: planted (beside.py:2)"


def caused(*errors: Exception) -> Exception:
    """The last of some errors, each caused by the one before it."""
    for cause, error in itertools.pairwise(errors):
        error.__cause__ = cause
    return errors[-1]


INTERPRETED = (
    "The following operation failed in the TorchScript interpreter.\nTraceback of TorchScript (most recent call "
    'last):\n  File "beside.py", line 3, in forward\n    return x @ y\n           ~~~~~ <--- HERE\n'
    "RuntimeError: mat1 and mat2 cannot be multiplied (2x3 and 2x3)\n"
)


@pytest.mark.parametrize("error, line", [
    (caused(ValueError("planted: the first cause\nand more"), torch.onnx.OnnxExporterError("while translating"),
            torch.onnx.OnnxExporterError("Failed to convert: step 3")),
     "OnnxExporterError, caused by ValueError: planted: the first cause"),
    (caused(KeyError("behind it"), ValueError("planted")), "ValueError: planted"),
    (RuntimeError("it fails:\n\n  planted\nmore"), "RuntimeError: it fails: planted"),
    (RuntimeError(""), "RuntimeError"),
    (RuntimeError(INTERPRETED), "RuntimeError: mat1 and mat2 cannot be multiplied (2x3 and 2x3) (beside.py:3)"),
])  # fmt: skip
def test_an_exception_is_one_line_and_that_of_an_exporter_says_at_what_it_stopped_first(tmp_path, error, line):
    assert describe(error, tmp_path) == line


# ---- fp16 at its ends ----------------------------------------------------------------------------------------------
STEP = 2.0**-24  # the smallest number of fp16


@pytest.mark.parametrize("precision, meant, got, verdict_", [
    pytest.param("fp16", 0.0, STEP, "verified", id="one step for 0"),
    pytest.param("fp16", 1e-8, 0.0, "verified", id="what fp16 cannot hold"),
    pytest.param("fp16", 0.0, 2 * STEP, "failed", id="two steps for 0"),
    pytest.param("int8", STEP, 0.0, "failed", id="int8 has no smallest number"),
])  # fmt: skip
def test_an_error_below_the_smallest_number_of_fp16_is_none(precision, meant, got, verdict_):
    one, right = (np.full((2, 3), value, "float32") for value in (got, meant))
    assert compare_outputs([one], [right], [right], [NOISE_LIMITS[precision]]).verdict == verdict_


MASKED = """
forward: x.masked_fill(torch.arange(6) == 2, {}).softmax(-1)
inputs: {{x: "float32[batch, 6]"}}
dims: {{batch: 1..4}}
runtimes: onnxruntime
specials: false
export: {{torchscript: [17]}}
precisions: {{fp16: {{}}}}
"""


@CHECKS
@pytest.mark.parametrize("value, said", [("-1e9", None), ("-1e6", "Where /Where reaches 1e+06")])
def test_a_mask_may_become_minus_infinity_in_fp16_and_a_constant_of_a_million_may_not(bench, check, value, said):
    record = run(bench, MASKED.format(value), f"{check} fp16")
    assert verdict(record) == (("failed", "convert", "Overflow", "precision") if said else PASSED)
    assert (said or "") in (record.reason or "")


# ---- the matrix ----------------------------------------------------------------------------------------------------
def test_long_names_are_cut_where_it_tells_them_apart_in_a_narrow_terminal():
    names = [f"a_convolution_with_a_name_that_tells_much-kernel=1-stride={stride}" for stride in (1, 2)]
    records = [report_record(name, exporter="torchscript", opset=17) for name in names]
    rows = [line.removesuffix("✓").rstrip() for line in matrix.lines(records, 80) if "✓" in line]
    assert [row[-10:] for row in rows] == [name[-10:] for name in names]
    assert all(row.startswith("a_convolution_with") for row in rows)


@pytest.mark.parametrize("body, exporter, hint", [
    ("forward: torch.asinh(x)", "torchscript: [17]", "symbolic"),
    ('forward: "x * 2 if bool(x.sum() > 0) else x"', "dynamo: [20]", "branch"),
    ("forward: torch.special.bessel_j0(x)", "dynamo: [20]", "translation"),
])  # fmt: skip
def test_an_export_that_fails_for_a_common_reason_says_what_to_do(bench, body, exporter, hint):
    more = say(body, 'inputs: {x: "float32[batch, 3]"}', "dims: {batch: 1..4}", f"export: {{{exporter}}}")
    record = bench.run(more, check="export")
    assert (record.stage, record.fault, record.hints) == ("export", "exporter", [hint]), record.reason
