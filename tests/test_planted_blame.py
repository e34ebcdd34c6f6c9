"""Plants defects of which two sides can be accused, and mistakes of the author that look like another's, and checks
who gets the blame."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import helper, numpy_helper

from conformance.case.python import Folder, describe
from conformance.checks import models as cellrun
from conformance.compare.noise import NOISE_LIMITS, compare_outputs
from conformance.plan.cell import Cell
from conformance.precision import convert
from conformance.records import matrix
from conformance.records.record import Record
from conformance.runtimes import onnxreference, onnxruntime, openvino
from conformance.verdict.loss import by_stage, greatest
from conformance.worker.warm import prepare_process
from tests.support import PASSED, Alter, Bench, details, say, verdict, with_symbolic


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    """As in a worker."""
    prepare_process()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """With a store of its own: a planted model has the key of the sound one."""
    return Bench(tmp_path, tmp_path / "store")


def wrong_in(output: int) -> Alter:
    def alter(inputs, outputs):
        return [one + np.float32(1e-2) if place == output else one for place, one in enumerate(outputs)]

    return alter


def refuse(inputs, outputs):
    raise RuntimeError("planted: not implemented")


def cells_of(bench: Bench, body: str, python: str = "") -> dict[str, Cell]:
    """The cells, by ``check precision``."""
    return {f"{one.check} {one.precision}": one for one in bench.cells(body, python)}


# ---- what other runtimes say ---------------------------------------------------------------------------------------

TWO = 'forward: (torch.sin(x), torch.cos(x))\ninputs: {x: "float32[batch, 3]"}\ndims: {batch: 1..4}'


def test_runtimes_that_are_wrong_in_another_output_are_no_witnesses_against_the_model(bench, break_opener):
    break_opener(onnxruntime, "open_optimized", wrong_in(0))
    break_opener(onnxruntime, "open_unoptimized", wrong_in(1))
    break_opener(onnxreference, "open_model", wrong_in(1))
    record = bench.run(TWO)
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    assert record.worst["output"] == 0
    assert "onnxruntime with its optimizer off: agrees with PyTorch" in details(record)


def test_runtimes_that_are_wrong_in_the_same_output_are(bench, break_opener):
    for module, name in ((onnxruntime, "open_optimized"), (onnxruntime, "open_unoptimized")):
        break_opener(module, name, wrong_in(0))
    for module in (onnxreference, openvino):
        break_opener(module, "open_model", wrong_in(0))
    assert verdict(bench.run(TWO)) == ("failed", "compare", "WrongValue", "exporter")


def test_that_another_runtime_runs_a_model_and_is_wrong_does_not_say_who_stops_it(bench, break_opener):
    break_opener(onnxruntime, "open_optimized", refuse)
    break_opener(onnxruntime, "open_unoptimized", wrong_in(0))
    break_opener(onnxreference, "open_model", wrong_in(0))
    record = bench.run(TWO)
    assert verdict(record) == ("failed", "run", "RuntimeError", None)
    assert "onnxruntime with its optimizer off: runs it, but its outputs are wrong" in details(record)


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
    break_opener(onnxruntime, "open_optimized", wrong_in(0))
    body = say(forward, 'inputs: {x: "float32[batch, 3]"}\ndims: {batch: 1..4}')
    record = bench.run(body, FLOAT32_ONLY)
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    told = "the module has no float64 form, so PyTorch's own rounding is not known"
    assert (told in details(record)) is missing


# ---- converted models ----------------------------------------------------------------------------------------------

LAYER = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, 6)

    def forward(self, x):
        return {returned}
"""

PRECISIONS = "precisions: {fp16: {}, int8: {}}"
NET = """
module: beside.Net
inputs: {x: "float32[batch, 6]"}
dims: {batch: 3..4}
trace: {batch: 4}
runtimes: onnxruntime
specials: false
export: {torchscript: [17]}
"""
BAKED_IN = LAYER.format(returned="self.layer(x) + torch.ones(int(x.shape[0]), 6)")
SOUND = LAYER.format(returned="self.layer(x)")
TWO_OUTPUTS = LAYER.format(returned="(self.layer(x), x.abs())")
CONVERTED = pytest.mark.parametrize("precision", ["fp16", "int8"])
CHECKS = pytest.mark.parametrize("check", ["fidelity", "accuracy"])


@CHECKS
@CONVERTED
def test_a_converted_model_that_stops_where_the_exported_one_does_is_the_exporters_fault(bench, check, precision):
    at_four = "{calibration: {at: {batch: 4}}}"  # where the model runs, so that it can be converted
    body = say(NET, f"precisions: {{{precision}: {at_four}}}")
    record = bench.run_cell(cells_of(bench, body, BAKED_IN)[f"{check} {precision}"], examples=2)
    assert (record.status, record.stage, record.fault) == ("failed", "run", "exporter")
    assert "the exported fp32 model stops there too" in details(record)


def reshape_to_four_rows(model):
    name = model.graph.output[0].name
    maker = next(node for node in model.graph.node if name in node.output)
    maker.output[0] = "planted/before"
    model.graph.initializer.append(numpy_helper.from_array(np.int64([4, 6]), "planted/shape"))
    model.graph.node.append(helper.make_node("Reshape", ["planted/before", "planted/shape"], [name]))


@pytest.fixture
def break_conversion(monkeypatch):
    def break_(change: Callable[[Any], None]) -> None:
        original = convert.convert

        def planted(given, feeds, measured):
            model, told = original(given, feeds, measured)
            change(model)
            return model, told

        monkeypatch.setattr(convert, "convert", planted)

    return break_


@CHECKS
def test_a_converted_model_that_stops_where_the_exported_one_runs_is_the_precisions_fault(
    bench, break_conversion, check
):
    break_conversion(reshape_to_four_rows)
    record = bench.run_cell(cells_of(bench, say(NET, PRECISIONS), SOUND)[f"{check} fp16"], examples=2)
    assert (record.status, record.stage, record.fault) == ("failed", "run", "precision")


@CONVERTED
def test_a_fidelity_record_says_what_its_numbers_are_stored_as(bench, precision):
    record = bench.run_cell(cells_of(bench, say(NET, PRECISIONS), SOUND)[f"fidelity {precision}"], examples=2)
    assert verdict(record) == PASSED
    assert record.arithmetic["storage"] == {"fp16": "float16", "int8": "int8"}[precision]


def times(output: int, factor: float) -> Callable[[Any], None]:
    def change(model):
        name = model.graph.output[output].name
        maker = next(node for node in model.graph.node if name in node.output)
        maker.output[0] = f"planted/before{output}"
        model.graph.initializer.append(numpy_helper.from_array(np.float32(factor), f"planted/by{output}"))
        node = helper.make_node("Mul", [f"planted/before{output}", f"planted/by{output}"], [name])
        model.graph.node.append(node)

    return change


@pytest.fixture
def break_export(monkeypatch):
    def break_(change: Callable[[Any], None]) -> None:
        original = cellrun.export

        def planted(*arguments, **options):
            exported = original(*arguments, **options)
            change(exported.model)
            return dataclasses.replace(exported)

        monkeypatch.setattr(cellrun, "export", planted)

    return break_


def test_the_fault_for_a_lost_output_does_not_follow_from_another_output(bench, break_export, break_conversion):
    break_export(times(0, 1.5))
    break_conversion(times(1, 1.4))
    loose = "tolerance: {int8: {outputs: {0: {sqnr: 1 dB}}, because: planted}}"
    cell = cells_of(bench, say(NET, PRECISIONS, loose), TWO_OUTPUTS)["fidelity int8"]
    record = bench.run_cell(cell, examples=2)
    assert verdict(record) == ("failed", "compare", "LowFidelity", "precision")
    assert record.fidelity["output"] == 1
    assert record.loss["export"] > 100  # of output 1; output 0 has 6 dB there
    assert greatest(record.loss) == "conversion"


def test_the_loss_of_one_output_is_not_that_of_all(tmp_path):
    def write(name: str, first: float, second: float) -> Path:
        nodes = [
            helper.make_node("Mul", ["x", "first"], ["a"]),
            helper.make_node("Mul", ["x", "second"], ["b"]),
        ]
        values = [
            numpy_helper.from_array(np.float32(one), name) for one, name in ((first, "first"), (second, "second"))
        ]
        x, a, b = (helper.make_tensor_value_info(name, 1, [3]) for name in "xab")
        graph = helper.make_graph(nodes, "planted", [x], [a, b], values)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        file = tmp_path / name
        file.write_bytes(model.SerializeToString())
        return file

    x = np.float32([1, 2, 3])
    exported, converted = write("exported", 1.5, 1.0), write("converted", 1.5, 1.1)
    found = [by_stage([x, x], exported, converted, None, [], {"x": x}, output) for output in (None, 0, 1)]
    assert [greatest(one) for one in found] == ["export", "export", "conversion"]
    assert found[1]["conversion"] == found[2]["export"] == np.inf
    assert found[2]["conversion"] == pytest.approx(20, abs=0.01)


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


@pytest.mark.parametrize("check", ["export", "accuracy"])
def test_a_module_whose_every_call_changes_a_buffer_is_the_cases_mistake(bench, check):
    record = bench.run(COUNTED, COUNTS.format(body="self.calls += 1"), check=check)
    assert verdict(record) == ("failed", "declare", "NotDeterministic", "case")


def test_an_exporter_that_changes_the_module_is_at_fault(bench, monkeypatch):
    original = cellrun.export

    def planted(reference, *arguments, **options):
        exported = original(reference, *arguments, **options)
        with torch.no_grad():
            reference.module.layer.weight += 1
        return exported

    monkeypatch.setattr(cellrun, "export", planted)
    record = bench.run(COUNTED, COUNTS.format(body="pass"), check="export")
    assert verdict(record) == ("failed", "export", "ChangedModule", "exporter")


# ---- mistakes of the author ----------------------------------------------------------------------------------------

ASINH = 'forward: torch.asinh(x)\ninputs: {x: "float32[batch, 3]"}\ndims: {batch: 1..4}'
SYMBOLIC = """
def symbolic(g):
    return g.op("Asinh", g)
"""
MAKE = """
def make(shape):
    return None
"""
MADE = """
forward: torch.sin(x)
inputs: {x: {type: "float32[batch, 3]", values: {python: beside.make}}}
dims: {batch: 1..4}
"""


def assert_one_line_about_the_case(record: Record, error: str, *parts: str) -> None:
    assert verdict(record) == ("failed", "declare", error, "case")
    assert "\n" not in record.reason
    assert all(part in record.reason for part in parts)
    assert not any("harness" in line for line in details(record))


@pytest.mark.parametrize("check", ["export", "accuracy"])
def test_a_symbolic_that_takes_other_arguments_is_named(bench, check):
    record = bench.run(say(ASINH, with_symbolic("aten::asinh")), SYMBOLIC, check=check)
    assert_one_line_about_the_case(record, "TypeError", "the symbolic of aten::asinh cannot be called", "argument")


@pytest.mark.parametrize("check", ["export", "accuracy"])
def test_a_function_for_values_that_takes_other_arguments_is_named(bench, check):
    record = bench.run(MADE, MAKE, check=check)
    assert_one_line_about_the_case(record, "TypeError", "beside.make cannot be called", "argument")


def test_a_mistake_inside_a_function_for_values_has_its_own_line(bench):
    inside = "def make(shape, sizes, rng):\n    return None + 1\n"
    record = bench.run(MADE, inside)
    assert verdict(record) == ("failed", "declare", "TypeError", "case")
    assert "beside.py:2" in record.reason
    assert "cannot be called" not in record.reason


@pytest.mark.parametrize("forward, told", [
    ("x.bfloat16()", "torch.bfloat16"),
    ("x.to_sparse()", "torch.sparse_coo"),
])  # fmt: skip
@pytest.mark.parametrize("check", ["export", "accuracy"])
def test_an_output_that_numpy_cannot_hold_is_named(bench, check, forward, told):
    record = bench.run(TWO.replace("(torch.sin(x), torch.cos(x))", forward), check=check)
    assert_one_line_about_the_case(record, "NoTensor", told, "convert it")


@pytest.mark.parametrize("check", ["export", "accuracy"])
def test_a_random_module_is_the_cases_mistake_also_where_it_cannot_be_exported(bench, check):
    body = "forward: torch.sin(x)[:, torch.randperm(4)]\ninputs: {x: 'float32[2, 4]'}\nruntimes: onnxruntime"
    record = bench.run(say(body, "export: {torchscript: [17]}"), check=check)
    assert_one_line_about_the_case(record, "NotDeterministic", "different outputs for the same input")


def test_an_export_that_fails_names_the_symbolic_of_the_case(bench):
    raises = "def symbolic(g, x):\n    raise RuntimeError('planted')\n"
    record = bench.run(say(ASINH, with_symbolic("aten::asinh")), raises, check="export")
    assert (record.stage, record.own_code) == ("export", ["beside.symbolic for aten::asinh"])


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
@pytest.mark.parametrize("check", ["export", "accuracy"])
def test_outputs_that_are_too_few_are_the_cases_mistake_in_every_cell(bench, check, exporter):
    opset = {"torchscript": 17, "dynamo": 20}[exporter]
    record = bench.run(say(TWO, "outputs: [a]", f"export: {{{exporter}: [{opset}]}}"), check=check)
    told = "outputs declares 1 name, forward returns 2 tensors"
    assert_one_line_about_the_case(record, "WrongOutputs", told)


# ---- one line for an exception -------------------------------------------------------------------------------------


def test_an_error_of_an_exporter_tells_what_it_stopped_at_first(tmp_path):
    steps: list[Exception] = [ValueError("planted: the first cause\nand more")]
    for text in ("while translating", "Failed to convert: step 3"):
        steps.append(torch.onnx.OnnxExporterError(text))
        steps[-1].__cause__ = steps[-2]
    assert describe(steps[-1], tmp_path) == "OnnxExporterError, caused by ValueError: planted: the first cause"
    assert describe(steps[0], tmp_path) == "ValueError: planted: the first cause"


def test_the_cause_of_what_others_raise_is_their_own_matter(tmp_path):
    error = ValueError("planted")
    error.__cause__ = KeyError("behind it")
    assert describe(error, tmp_path) == "ValueError: planted"


@pytest.mark.parametrize("text, line", [
    ("it fails:\n\n  planted\nmore", "RuntimeError: it fails: planted"),
    ("it fails: planted\nmore", "RuntimeError: it fails: planted"),
    ("it fails:", "RuntimeError: it fails:"),
    ("", "RuntimeError"),
])  # fmt: skip
def test_a_line_that_introduces_the_next_comes_with_it(tmp_path, text, line):
    assert describe(RuntimeError(text), tmp_path) == line


# ---- fp16 at its ends ----------------------------------------------------------------------------------------------

STEP = 2.0**-24  # the smallest number of fp16


@pytest.mark.parametrize("meant, got, verdict_", [
    pytest.param(0.0, STEP, "verified", id="one step for 0"),
    pytest.param(STEP, 0.0, "verified", id="0 for one step"),
    pytest.param(1e-8, 0.0, "verified", id="what fp16 cannot hold"),
    pytest.param(0.0, 2 * STEP, "failed", id="two steps for 0"),
    pytest.param(1e-3, 0.0, "failed", id="0 for a thousandth"),
    pytest.param(1e-3, 1.01e-3, "failed", id="a thousandth by a hundredth"),
])  # fmt: skip
def test_an_error_below_the_smallest_number_of_fp16_is_none(meant, got, verdict_):
    one, right = (np.full((2, 3), value, "float32") for value in (got, meant))
    assert compare_outputs([one], [right], [right], [NOISE_LIMITS["fp16"]]).verdict == verdict_


def test_int8_has_no_smallest_number():
    one, right = np.zeros((2, 3), "float32"), np.full((2, 3), STEP, "float32")
    assert compare_outputs([one], [right], [right], [NOISE_LIMITS["int8"]]).verdict == "failed"


def fp16_body(forward: str, high: float) -> str:
    values = f"values: {{uniform: {{low: {-high}, high: {high}}}}}"
    inputs = f'inputs: {{x: {{type: "float32[batch, 6]", {values}}}}}\ndims: {{batch: 1..4}}'
    more = "runtimes: onnxruntime\nspecials: false\nexport: {torchscript: [17]}\nprecisions: {fp16: {}}"
    return say(f"forward: {forward}", inputs, more)


def test_a_runtime_is_not_accused_of_losing_what_fp16_cannot_hold(bench):
    body = fp16_body("torch.nn.functional.tanhshrink(x)", 4)
    assert verdict(bench.run_cell(cells_of(bench, body)["accuracy fp16"], examples=2)) == PASSED


@CHECKS
def test_a_finite_mask_may_become_minus_infinity(bench, check):
    body = fp16_body("x.masked_fill(torch.arange(6) == 2, -1e9).softmax(-1)", 4)
    assert verdict(bench.run_cell(cells_of(bench, body)[f"{check} fp16"], examples=2)) == PASSED


@CHECKS
def test_a_constant_of_a_million_is_beyond_fp16_and_its_node_is_named(bench, check):
    body = fp16_body("x.masked_fill(torch.arange(6) == 2, -1e6).softmax(-1)", 4)
    record = bench.run_cell(cells_of(bench, body)[f"{check} fp16"], examples=2)
    assert verdict(record) == ("failed", "convert", "Overflow", "precision")
    assert "Where /Where reaches 1e+06" in record.reason


# ---- the matrix ----------------------------------------------------------------------------------------------------


def test_combinations_of_a_grid_can_be_told_apart_in_a_narrow_terminal():
    names = [
        f"a_convolution_with_a_name_that_tells_much-kernel={kernel}-stride={stride}"
        for kernel, stride in itertools.product((1, 3), (1, 2))
    ]
    common = {"exporter": "torchscript", "runtime": "onnxruntime", "precision": "fp32", "check": "accuracy"}
    lines = list(matrix.lines([{"case": name, "opset": 17, "status": "passed", **common} for name in names], 80))
    rows = [line.removesuffix("✓").rstrip() for line in lines if "✓" in line]
    assert len(set(rows)) == len(names)
    assert all(row.startswith("a_convolution_with") and row.endswith(name[-10:])
               for row, name in zip(rows, names, strict=True))  # fmt: skip
    assert max(map(len, lines)) <= 80


def test_a_witness_that_agrees_decides_though_another_runs_the_model_and_is_wrong(bench, break_opener):
    break_opener(onnxruntime, "open_optimized", refuse)
    break_opener(onnxruntime, "open_unoptimized", wrong_in(0))
    assert verdict(bench.run(TWO)) == ("failed", "run", "RuntimeError", "runtime")


def test_a_module_that_its_first_call_alone_changes_is_not_the_exporters_fault(bench):
    record = bench.run(COUNTED, COUNTS.format(body="self.calls.fill_(1)"), check="export")
    assert verdict(record) == ("failed", "declare", "NotDeterministic", "case")


DRIFTS = """
import torch

calls = []


class Drifts(torch.nn.Module):
    def forward(self, x):
        if not torch.jit.is_tracing():
            calls.append(x.numpy().tobytes())
        return torch.sin(x) + (1 if len(calls) > {after} else 0)
"""
DRIFTING = """
module: beside.Drifts
inputs: {x: "float32[batch, 3]"}
dims: {batch: 1..4}
runtimes: onnxruntime
"""


@pytest.mark.parametrize("after", [3, 6, 12])
def test_a_module_that_drifts_while_its_examples_run_is_the_cases_mistake(bench, after):
    record = bench.run(DRIFTING, DRIFTS.format(after=after))
    assert verdict(record) == ("failed", "declare", "NotDeterministic", "case")


@pytest.mark.parametrize("body", ["len(calls) % 2", "int(len(calls) % 3 == 1)", "torch.rand(1)"])
def test_a_module_that_takes_turns_or_is_random_is_the_cases_mistake(bench, body):
    record = bench.run(DRIFTING, DRIFTS.replace("(1 if len(calls) > {after} else 0)", body))
    assert verdict(record) == ("failed", "declare", "NotDeterministic", "case")


@pytest.mark.parametrize("after", range(5))
def test_a_module_that_ends_its_process_at_some_call_is_the_cases_mistake(bench, after):
    python = DRIFTS.replace(
        "        return", f"        if len(calls) > {after}:\n            raise SystemExit(3)\n        return"
    )
    record = bench.run(DRIFTING, python.format(after=10**6))
    assert verdict(record) == ("failed", "declare", "SystemExit", "case")
    assert "beside.py" in record.reason


def test_values_whose_function_ends_the_process_are_the_cases_mistake(bench):
    body = (
        'forward: torch.sin(x)\ninputs: {x: {type: "float32[n, 3]", values: {python: beside.made}}}\ndims: {n: 1..4}'
    )
    python = """
    import numpy as np

    def made(shape, dims, rng):
        if dims["n"] == 4:
            raise SystemExit(3)
        return np.zeros(shape, "float32")
    """
    record = bench.run(say(body, "runtimes: onnxruntime"), python)
    assert verdict(record) == ("failed", "declare", "SystemExit", "case")


def test_a_module_is_asked_for_each_example_and_once_more_for_the_first(bench):
    (cell,) = (
        cell
        for cell in bench.cells(say(DRIFTING, "export: {torchscript: [17]}"), DRIFTS.format(after=10**6))
        if cell.check == "specials"  # which asks nothing else of the module
    )
    bench.run_cell(cell)  # which exports
    with Folder.of(cell.case.folder).active() as folder:
        calls = folder.resolve("beside.calls")
    calls.clear()
    record = bench.run_cell(cell)
    assert verdict(record) == PASSED
    assert len(calls) == record.examples + record.nothing + record.ill_conditioned + 1
    assert sorted(Counter(calls).values())[-2:] == [1, 2]


def test_a_symbolic_behind_parse_args_that_takes_other_arguments_is_named(bench):
    python = """
    from torch.onnx.symbolic_helper import parse_args


    @parse_args("v")
    def symbolic(g, x, y):
        return g.op("Asinh", x)
    """
    record = bench.run(say(ASINH, with_symbolic("aten::asinh")), python, check="export")
    assert_one_line_about_the_case(record, "TypeError", "the symbolic of aten::asinh cannot be called", "argument")


def test_a_function_for_all_inputs_that_takes_other_arguments_is_named(bench):
    record = bench.run(say(ASINH, "draw: beside.make"), MAKE)
    assert_one_line_about_the_case(record, "TypeError", "beside.make cannot be called", "argument")


def test_an_error_inside_a_translation_has_its_place(bench):
    body = say(ASINH, "export: {dynamo: {opsets: [20], translations: {aten::asinh: beside.translate}}}")
    record = bench.run(body, 'def translate(x):\n    raise ValueError("planted")\n', check="export")
    assert record.reason == "ConversionError, caused by ValueError: planted (beside.py:2)"


def zeros(inputs, outputs):
    return [np.zeros_like(one) for one in outputs]


def test_outputs_below_the_smallest_number_of_fp16_prove_nothing(bench, break_opener):
    break_opener(onnxruntime, "open_optimized", zeros)
    body = fp16_body("torch.sin(x) * 1e-9", 4).replace("fp16: {}", "fp16: {exclude: Mul}")
    record = bench.run_cell(cells_of(bench, body)["accuracy fp16"], examples=2)
    assert verdict(record) == ("failed", "compare", "Vacuous", "case")


@CHECKS
def test_computed_values_of_the_size_of_a_mask_are_beyond_fp16(bench, check):
    body = fp16_body("1 / (1 + (x * x).sum(-1))", 40_000)
    record = bench.run_cell(cells_of(bench, body)[f"{check} fp16"], examples=2)
    assert verdict(record) == ("failed", "convert", "Overflow", "precision")
    assert all(f"{one} /{one} reaches" in record.reason for one in ("Mul", "ReduceSum", "Add"))


def test_names_are_cut_where_it_tells_them_apart():
    names = [
        f"deform_conv_geometry-stride_{stride}-padding_{padding}-dilation_1-kernel_3"
        for stride, padding in itertools.product((1, 12), (0, 1))
    ]
    common = {"exporter": "torchscript", "runtime": "onnxruntime", "precision": "fp32", "check": "accuracy"}
    lines = list(matrix.lines([{"case": name, "opset": 17, "status": "passed", **common} for name in names], 80))
    assert len({line for line in lines if "✓" in line}) == len(names)
    assert max(map(len, lines)) <= 80


SUM = LAYER.format(returned="(torch.tanh(self.layer(x)), self.layer(x).sum(0))")


def nothing_for_one_row(model):
    """In output 1, whose values are small there."""
    times(1, 1.0)(model)
    name = model.graph.input[0].name
    values = {"one": np.int64([1]), "first": np.int64([0])}
    model.graph.initializer.extend(numpy_helper.from_array(value, what) for what, value in values.items())
    factor = [
        helper.make_node("Shape", [name], ["shape"]),
        helper.make_node("Gather", ["shape", "first"], ["rows"]),
        helper.make_node("Greater", ["rows", "one"], ["more"]),
        helper.make_node("Cast", ["more"], ["factor"], to=1),
    ]
    last = model.graph.node.pop()
    last.input[1] = "factor"
    model.graph.node.extend([*factor, last])


def test_a_record_of_a_draw_that_others_hide_is_about_its_output(bench, break_conversion):
    def change(model):
        nothing_for_one_row(model)
        times(0, 1.09)(model)  # within what int8 may cost, but nearer to its limit

    break_conversion(change)
    body = say(NET.replace("3..4", "1..60"), PRECISIONS)
    record = bench.run_cell(cells_of(bench, body, SUM)["fidelity int8"], examples=2)
    assert verdict(record) == ("failed", "compare", "LowFidelity", "precision")
    assert "SQNR 0.0 dB at batch=1" in record.reason
    assert record.fidelity["output"] == record.worst["output"] == 1
    assert record.loss["conversion"] == pytest.approx(0, abs=0.1)
