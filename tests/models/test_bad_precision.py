"""Plants what cannot be converted, and calibration data that is none: one clear message each, no traceback.

``test_calibration.py`` has every kind of wrong calibration data; here is what becomes of it in a cell.
"""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.results.records.record import Record
from tests.kit.cases import PASSED, Bench, details, problems_of, say, verdict
from tests.kit.modules import net_of
from tests.kit.runtimes import wrong_runtime

COMMON = """
runtimes: onnxruntime
specials: false
"""
INPUT = """
inputs: {x: "float32[batch, 4]"}
dims: {batch: 1..4}
"""


def module(expression: str, more: str = "") -> str:
    """A module with one Linear, ``self.w``."""
    return f"import numpy as np{net_of(expression, w='Linear(4, 5)')}\n\n{more}\n"


LINEAR = module("self.w(x)")
CONVERTED = pytest.mark.parametrize("precision", ["fp16", "int8"])


def body_of(inputs: str = INPUT, says: str = "int8: {}", forward: str = "module: beside.Net", more: str = "") -> str:
    export = "" if "export:" in more else "export: {torchscript: [17]}"
    return say(forward, inputs, COMMON, more, export, f"precisions: {{{says}}}")


def run(
    bench: Bench,
    body: str,
    python: str = LINEAR,
    *,
    check: str = "fidelity",
    files: dict[str, bytes | Any] | None = None,
) -> Record:
    """The record of the only converted cell of that check; ``files`` are beside the case file, by name."""
    (cell,) = (one for one in bench.cells(body, python) if one.check == check and one.converted)
    for name, content in (files or {}).items():
        file = cell.case.folder / name
        if isinstance(content, bytes):
            file.write_bytes(content)
        else:
            np.save(file, content)
    return bench.run_cell(cell, examples=1)


def assert_stopped(record: Record, stage: str, error: str, fault: str, *parts: str) -> None:
    """It stopped there, says why in one line, and shows nothing of the inside of this package."""
    assert verdict(record) == ("failed", stage, error, fault)
    assert_clear(record)
    for part in parts:
        assert part in record.reason


def assert_clear(record: Record) -> None:
    assert record.reason.strip() and "\n" not in record.reason
    lines = [record.reason, *details(record)]
    assert not any("Traceback" in line or 'File "' in line or "mistake in the harness" in line for line in lines)


INTEGERS = 'inputs: {x: {type: "int64[batch, 4]", values: {integers: {low: 0, high: 4}}}}\ndims: {batch: 1..4}'
FLOAT64, FLOAT16 = INPUT.replace("float32", "float64"), INPUT.replace("float32", "float16")
SCALAR = 'inputs: {x: "float32[]"}'
ODD = {
    "integer matrices": ("x @ x.T", INTEGERS), "integers alone": ("x + x", INTEGERS), "float64": ("x @ x.T", FLOAT64),
    "float16": ("x * 2", FLOAT16), "0-d": ("torch.sin(x)", SCALAR),
}  # fmt: skip
"""Models that have little or nothing in float32."""


@pytest.mark.parametrize("name", ODD)
def test_a_model_with_nothing_to_quantize_says_so_and_becomes_fp16_as_it_is(bench, name):
    forward, inputs = ODD[name]
    for check in ("fidelity", "accuracy"):
        record = run(bench, body_of(inputs, forward=f"forward: {forward}"), check=check)
        part = "only MatMul without float" if forward == "x @ x.T" else "has none"
        assert_stopped(record, "convert", "NothingToQuantize", "case", "there is nothing to quantize", part)
        assert verdict(run(bench, body_of(inputs, "fp16: {}", f"forward: {forward}"), check=check)) == PASSED


@pytest.mark.parametrize("says, part", [
    ("int8: {exclude: Gemm}", "only Gemm without float operands, or excluded"),
    ("int8: {exclude: /w/*}", "only Gemm without float operands, or excluded"),
    ("int8: {operators: [Nosuch]}", "of Nosuch the model has none"),
])  # fmt: skip
def test_a_case_that_leaves_nothing_to_quantize_is_told_so(bench, says, part):
    assert_stopped(run(bench, body_of(says=says)), "convert", "NothingToQuantize", "case", part)


def test_two_inputs_that_are_multiplied_are_quantized_without_any_weight(bench):
    inputs = 'inputs: {x: "float32[n, 4]", y: "float32[4, n]"}\ndims: {n: 1..4}'
    record = run(bench, body_of(inputs, forward="forward: x @ y"))
    assert verdict(record) == PASSED and record.conversion["quantized"] == 1


BRANCHES = net_of("self.w(x) if x.sum() > 0 else self.v(x) * 2", w="Linear(4, 5)", v="Linear(4, 5)")


def test_a_scripted_module_with_branches_becomes_fp16_in_both(bench):
    record = run(bench, body_of(says="fp16: {}", more="script: true"), BRANCHES)
    assert verdict(record) == PASSED and record.graph["nodes"]["If"] == 1 and 50 < record.fidelity["sqnr"] < 100


def test_branches_that_hold_all_there_is_to_quantize_stop_the_conversion(bench):
    """The operators inside a branch are not said to be missing."""
    record = run(bench, body_of(more="script: true"), BRANCHES)
    assert_stopped(record, "convert", "NothingToQuantize", "case", "If")
    assert "has none" not in record.reason


@pytest.mark.parametrize("expression", [
    pytest.param("self.w(x[torch.nonzero(x[:, 0] > -9).squeeze(1)])", id="nonzero"),
    pytest.param("self.w(x.reshape(x.shape[0] * 2, -1).reshape(-1, 4))", id="computed shape"),
])  # fmt: skip
@CONVERTED
def test_shapes_that_only_running_tells_do_not_stop_a_conversion(bench, precision, expression):
    assert verdict(run(bench, body_of(says=f"{precision}: {{}}"), module(expression))) == PASSED


@pytest.mark.parametrize("entry, part", [
    ("/w/Gem", "no node or operator '/w/Gem'; did you mean '/w/Gemm'?"),
    ("Conv", "no node or operator 'Conv'; known: /w/Gemm"),
    ("/nosuch/*", "no node or operator '/nosuch/*'; known: /w/Gemm"),
])  # fmt: skip
@CONVERTED
def test_an_entry_of_exclude_that_means_no_node_gets_a_suggestion(bench, precision, entry, part):
    record = run(bench, body_of(says=f"{precision}: {{exclude: {entry}}}"))
    assert_stopped(record, "convert", "UnknownNode", "case", "exclude: ", part)


def test_an_entry_of_exclude_for_the_other_exporter_is_not_looked_for(bench):
    assert verdict(run(bench, body_of(says="int8: {exclude: {dynamo: nosuch}}"))) == PASSED


@pytest.mark.parametrize("says, export, part", [
    ("int8: {}", "[11]", "int8 needs opset 13 or higher (scales for each channel), not 11"),
    ("int8: {opsets: 18}", "[17]", "opset 18 is not exported"),
    ("fp16: {operators: Gemm}", "[17]", "operators is for int8"), ("fp32: {}", "[17]", "fp32 is what is exported"),
    ("fp9: {}", "[17]", "is not a precision"), ("fp8: {}", "[17]", "say which file has it"),
    ("int8: {calibration: {at: {nosuch: 4}}}", "[17]", "there is no dim 'nosuch'"),
    ("int8: {calibration: {samples: 4}}", "[17]", "8"), ("int8: {calibration: {method: mean}}", "[17]", "entropy"),
    ("int8: {calibraton: {}}", "[17]", "did you mean 'calibration'?"),
])  # fmt: skip
def test_a_precision_that_makes_no_sense_is_a_mistake_in_the_case_file_with_its_place(tmp_path, says, export, part):
    body = body_of(says=says, more=f"export: {{torchscript: {export}}}").replace("\n", "\n  ")
    (problem,) = problems_of(tmp_path, f"wide:\n  about: x\n  {body}\n")
    assert part in problem.message
    assert problem.line == len(body.splitlines()) + 2, "the precisions are the last line of the case"


def test_an_old_opset_beside_a_new_one_is_not_converted_and_no_mistake(tmp_path):
    text = "wide:\n  about: x\n  forward: x @ x.T\n  " + INPUT.strip().replace("\n", "\n  ")
    text += "\n  export: {torchscript: [11, 17]}\n  precisions: {int8: {}}\n"
    assert problems_of(tmp_path, text) == []


GOOD = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def from_data(name: str = "data.npy") -> str:
    return f"int8: {{calibration: {{data: {name}}}}}"


@pytest.mark.parametrize("name, data, part", [
    pytest.param("data.npy", b"no array at all", "cannot be read", id="corrupt"),
    pytest.param("data.npy", None, "there is no", id="missing"),
    pytest.param("data.txt", b"1 2 3", ".npy", id="another kind"),
])  # fmt: skip
def test_a_calibration_file_that_is_none_is_named_with_what_is_wrong(bench, name, data, part):
    for check in ("fidelity", "accuracy"):
        record = run(bench, body_of(says=from_data(name)), check=check, files={} if data is None else {name: data})
        assert_stopped(record, "declare", "BadCalibration", "case", "calibration: ", name, part)


def test_data_of_sizes_that_the_model_does_not_take_is_the_cases_fault(bench):
    static = "export: {torchscript: {opsets: [17], static: batch}}"
    record = run(bench, body_of(INPUT, from_data(), more=static), files={"data.npy": GOOD})
    assert_stopped(record, "declare", "BadCalibration", "case", "data.npy")


CHOSEN = 'inputs: {x: "float32[batch, 4]", i: {type: "int64[batch]", values: {integers: {low: 0, high: 4}}}}'


@CONVERTED
def test_data_that_the_exported_model_does_not_run_on_is_the_cases_fault(bench, precision):
    body = body_of(say(CHOSEN, "dims: {batch: 1..4}"), f"{precision}: {{calibration: {{data: data.npz}}}}")
    python = module("self.w(x) * self.w.weight.sum(1)[i][:, None]").replace("(self, x)", "(self, x, i)")
    numbers = np.arange(32) % 5
    assert run(bench, body, python, files={"data.npz": npz(x=GOOD, i=numbers)}).stage in (None, "compare")
    numbers[20] = 9
    record = run(bench, body, python, files={"data.npz": npz(x=GOOD, i=numbers)})
    parts = ("the exported model does not run on batch 2, data.npz",)
    assert_stopped(record, "convert", "BadCalibration", "case", *parts)


ARRAY = "rng.normal(size=(8, 4)).astype('float32')"


@pytest.mark.parametrize("function, error, part", [
    pytest.param(f"def data(rng):\n    yield {{'x': {ARRAY}}}\n    raise RuntimeError('planted')", "RuntimeError",
                 "planted (beside.py:", id="raises later"),
    pytest.param("def data(rng):\n    raise SystemExit(3)\n    yield", "SystemExit", "beside.py:", id="exits"),
    pytest.param("def datum(rng):\n    yield", "MissingName", "did you mean 'datum'?", id="misspelt"),
    pytest.param("data = 3", "BadCalibration", "beside.data", id="no function"),
])  # fmt: skip
def test_a_generator_that_gives_no_calibration_data_is_the_cases_fault_in_one_line(bench, function, error, part):
    record = run(bench, body_of(says=from_data("beside.data")), module("self.w(x)", function))
    assert_stopped(record, "declare", error, "case", part)


@pytest.mark.parametrize("wrap", ["torch.from_numpy(found)", "np.asfortranarray(found)"])
def test_what_a_generator_may_give_besides_plain_arrays(bench, wrap):
    function = f"def data(rng):\n    while True:\n        found = {ARRAY}\n        yield {{'x': {wrap}, 'label': 3}}"
    record = run(bench, body_of(says=from_data("beside.data")), module("self.w(x)", function))
    assert verdict(record) == PASSED and record.conversion["calibration"]["samples"] == 32


POSITIVE = INPUT.replace('"float32[batch, 4]"', '{type: "float32[batch, 4]", values: {uniform: {low: 0.5, high: 1}}}')


def test_values_inside_the_model_that_are_not_finite_make_no_range(bench):
    """``test_ranges.py`` has the other ways of measuring a range."""

    def logarithm(value: float) -> Record:
        data = np.abs(GOOD) + np.float32(0.1)
        data[7, 2] = value
        return run(bench, body_of(POSITIVE, from_data()), module("self.w(torch.log(x))"), files={"data.npy": data})

    record = logarithm(0.0)
    assert_stopped(record, "convert", "BadRange", "case", "values inside the model are not finite", "calibration")
    assert "range" not in record.reason.rpartition(": ")[2], "the value is named"
    assert logarithm(0.5).stage != "convert"


SYMBOLIC = """
export:
  torchscript:
    opsets: [17]
    symbolics: {"aten::asinh": beside.symbolic}
    options: {custom_opsets: {planted: 1}}
"""
NOBODYS = module("self.w(torch.asinh(x))", "def symbolic(g, x):\n    return g.op('planted::Asinh', x)")


@CONVERTED
def test_an_operator_that_nobody_knows_stops_the_conversion_in_one_line(bench, precision):
    """The exported model does not load in fp32 either: that is not the precision's fault."""
    record = run(bench, body_of(says=f"{precision}: {{}}", more=SYMBOLIC), NOBODYS)
    assert (record.status, record.stage, record.fault) == ("failed", "load", "exporter")
    assert_clear(record)
    assert "planted:Asinh" in record.reason
    assert "augmented.onnx" not in record.reason, "a temporary file of the calibrator"


def test_the_folder_of_the_case_is_left_as_it_was(bench):
    cell = bench.cell(body_of(), LINEAR, check="fidelity")
    before = sorted(file.name for file in Path(cell.case.folder).iterdir())
    assert verdict(bench.run_cell(cell, examples=1)) == PASSED
    assert sorted(file.name for file in Path(cell.case.folder).iterdir() if file.name != "__pycache__") == before


UNIQUE = "forward: torch.unique(x, dim=0)"


def test_how_many_values_there_are_may_be_a_matter_of_rounding(bench):
    record = run(bench, body_of('inputs: {x: "float32[64]"}', "fp16: {}", UNIQUE))
    assert record.status != "failed", record.reason


def test_a_value_that_is_lost_is_no_matter_of_rounding(bench):
    """Whole numbers up to 100 are as many in float16."""
    whole = 'inputs: {x: {type: "float32[8]", values: {integers: {low: 0, high: 100}}}}'
    body = body_of(whole, "fp16: {}", UNIQUE)
    assert run(bench, body).status == "passed"
    with wrong_runtime(lambda _, outputs: [outputs[0][1:]], "onnxruntime-literal"):
        record = run(bench, body)
    assert (record.status, record.error) == ("failed", "WrongShape")
