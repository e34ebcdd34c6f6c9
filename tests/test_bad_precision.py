"""Plants what cannot be converted, and calibration data that is none: one clear message each, no traceback."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.errors import CaseFileError
from conformance.records.record import Record
from conformance.worker.warm import prepare_process
from tests.support import PASSED, Bench, details, load_case, problems_of, say, verdict

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
    return f"""
import numpy as np
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Linear(4, 5)

    def forward(self, x):
        return {expression}


{more}
"""


LINEAR = module("self.w(x)")
CONVERTED = pytest.mark.parametrize("precision", ["fp16", "int8"])
METHODS = pytest.mark.parametrize("method", ["minmax", "entropy", "percentile"])


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    """As in a worker."""
    prepare_process()


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
    assert record.reason.strip()
    assert "\n" not in record.reason
    lines = [record.reason, *details(record)]
    assert not any("Traceback" in line or 'File "' in line or "mistake in the harness" in line for line in lines)


# ---- nothing to quantize -----------------------------------------------------------------------------------

INTEGERS = 'type: "int64[batch, 4]", values: {integers: {low: 0, high: 4}}'


@pytest.mark.parametrize("forward, inputs, part", [
    pytest.param("torch.sin(x)", INPUT, "of Conv, ConvTranspose, Gemm, MatMul the model has none", id="no such node"),
    pytest.param("x @ x.T", f"inputs: {{x: {{{INTEGERS}}}}}\ndims: {{batch: 1..4}}", "only MatMul without float",
                 id="integer matrices"),
    pytest.param("x + x", f"inputs: {{x: {{{INTEGERS}}}}}\ndims: {{batch: 1..4}}", "has none", id="integers alone"),
    pytest.param("x @ x.T", INPUT.replace("float32", "float64"), "only MatMul without float", id="float64"),
    pytest.param("x * 2", INPUT.replace("float32", "float16"), "has none", id="float16"),
    pytest.param("torch.sin(x)", 'inputs: {x: "float32[]"}', "has none", id="0-d"),
])  # fmt: skip
@pytest.mark.parametrize("check", ["fidelity", "accuracy"])
def test_a_model_with_nothing_to_quantize_says_so(bench, check, forward, inputs, part):
    record = run(bench, body_of(inputs, forward=f"forward: {forward}"), check=check)
    assert_stopped(record, "convert", "NothingToQuantize", "case", "there is nothing to quantize", part)


@pytest.mark.parametrize("says, part", [
    ("int8: {exclude: Gemm}", "only Gemm without float operands, or excluded"),
    ("int8: {exclude: /w/*}", "only Gemm without float operands, or excluded"),
    ("int8: {operators: Conv}", "of Conv the model has none"),
    ("int8: {operators: [Nosuch]}", "of Nosuch the model has none"),
])  # fmt: skip
def test_a_case_that_leaves_nothing_to_quantize_is_told_so(bench, says, part):
    assert_stopped(run(bench, body_of(says=says)), "convert", "NothingToQuantize", "case", part)
    assert verdict(run(bench, body_of())) == PASSED


def test_two_inputs_that_are_multiplied_are_quantized_without_any_weight(bench):
    inputs = 'inputs: {x: "float32[n, 4]", y: "float32[4, n]"}\ndims: {n: 1..4}'
    record = run(bench, body_of(inputs, forward="forward: x @ y"))
    assert verdict(record) == PASSED
    assert record.conversion["quantized"] == 1


BRANCHES = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Linear(4, 5)
        self.v = torch.nn.Linear(4, 5)

    def forward(self, x):
        if x.sum() > 0:
            y = self.w(x)
        else:
            y = self.v(x) * 2
        return y
"""


def test_a_scripted_module_with_branches_becomes_fp16_in_both(bench):
    record = run(bench, body_of(says="fp16: {}", more="script: true"), BRANCHES)
    assert verdict(record) == PASSED
    assert record.graph["nodes"]["If"] == 1
    assert 50 < record.fidelity["sqnr"] < 100


def test_branches_that_hold_all_there_is_to_quantize_stop_the_conversion(bench):
    record = run(bench, body_of(more="script: true"), BRANCHES)
    assert_stopped(record, "convert", "NothingToQuantize", "case")


def test_operators_inside_a_branch_are_not_said_to_be_missing(bench):
    record = run(bench, body_of(more="script: true"), BRANCHES)
    assert "has none" not in record.reason
    assert "If" in record.reason


# ---- what converts though it looks odd ---------------------------------------------------------------------


@pytest.mark.parametrize("forward, inputs", [
    pytest.param("x + x", f"inputs: {{x: {{{INTEGERS}}}}}\ndims: {{batch: 1..4}}", id="integers alone"),
    pytest.param("x @ x.T", INPUT.replace("float32", "float64"), id="float64"),
    pytest.param("x * 2", INPUT.replace("float32", "float16"), id="float16"),
    pytest.param("torch.sin(x)", 'inputs: {x: "float32[]"}', id="0-d"),
])  # fmt: skip
@pytest.mark.parametrize("check", ["fidelity", "accuracy"])
def test_a_model_with_nothing_or_little_to_make_fp16_passes(bench, check, forward, inputs):
    assert verdict(run(bench, body_of(inputs, "fp16: {}", f"forward: {forward}"), check=check)) == PASSED


@CONVERTED
def test_a_0d_input_beside_others_is_calibrated(bench, precision):
    inputs = 'inputs: {x: "float32[]", y: "float32[batch, 4]"}\ndims: {batch: 1..4}'
    record = run(bench, body_of(inputs, f"{precision}: {{}}", "forward: y @ torch.eye(4) * x"))
    assert verdict(record) == PASSED
    assert record.conversion["calibration"]["batch"] == 1


@pytest.mark.parametrize("expression", [
    pytest.param("self.w(x[torch.nonzero(x[:, 0] > -9).squeeze(1)])", id="nonzero"),
    pytest.param("self.w(x.reshape(x.shape[0] * 2, -1).reshape(-1, 4))", id="computed shape"),
    pytest.param("self.w(x)[torch.nonzero(x.flatten() > 0).shape[0] * 0:]", id="shape of values"),
])  # fmt: skip
@CONVERTED
def test_shapes_that_only_running_tells_do_not_stop_a_conversion(bench, precision, expression):
    assert verdict(run(bench, body_of(says=f"{precision}: {{}}"), module(expression))) == PASSED


# ---- exclude -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry, part", [
    ("/w/Gem", "no node or operator '/w/Gem'; did you mean '/w/Gemm'?"),
    ('"/w/[Gemm"', "no node or operator '/w/[Gemm'; did you mean '/w/Gemm'?"),
    ("Conv", "no node or operator 'Conv'; known: /w/Gemm"),
    ("/nosuch/*", "no node or operator '/nosuch/*'; known: /w/Gemm"),
    ('""', "no node or operator ''"),
])  # fmt: skip
@CONVERTED
def test_an_entry_of_exclude_that_means_no_node_gets_a_suggestion(bench, precision, entry, part):
    record = run(bench, body_of(says=f"{precision}: {{exclude: {entry}}}"))
    assert_stopped(record, "convert", "UnknownNode", "case", "exclude: ", part)


def test_an_entry_of_exclude_for_the_other_exporter_is_not_looked_for(bench):
    assert verdict(run(bench, body_of(says="int8: {exclude: {dynamo: nosuch}}"))) == PASSED


# ---- what the case file itself refuses ---------------------------------------------------------------------


@pytest.mark.parametrize("says, export, part", [
    ("int8: {}", "[11]", "int8 needs opset 13 or higher (scales for each channel), not 11"),
    ("int8-entropy: {}", "[9, 12]", "int8 needs opset 13 or higher (scales for each channel), not 12"),
    ("int8: {opsets: 11}", "[11, 17]", "int8 needs opset 13 or higher (scales for each channel), not 11"),
    ("int8: {opsets: 18}", "[17]", "opset 18 is not exported"),
    ("fp16: {operators: Gemm}", "[17]", "operators is for int8"),
    ("fp32: {}", "[17]", "fp32 is what is exported"),
    ("fp8: {}", "[17]", "is not a precision"),
    ("int8: {calibration: {at: {nosuch: 4}}}", "[17]", "there is no dim 'nosuch'"),
    ("int8: {calibration: {samples: 4}}", "[17]", "8"),
    ("int8: {calibration: {batch: 0}}", "[17]", "1"),
    ("int8: {calibration: {method: mean}}", "[17]", "entropy"),
    ("int8: {calibration: {percentile: 101}}", "[17]", "100"),
    ("int8: {calibraton: {}}", "[17]", "did you mean 'calibration'?"),
])  # fmt: skip
def test_a_precision_that_makes_no_sense_is_a_mistake_in_the_case_file_with_its_place(tmp_path, says, export, part):
    body = body_of(says=says, more=f"export: {{torchscript: {export}}}")
    with pytest.raises(CaseFileError) as caught:
        load_case(tmp_path, body)
    (problem,) = caught.value.problems
    assert part in problem.message
    assert problem.line == len(body.splitlines()) + 2  # the precisions are the last line of the case


def test_an_old_opset_beside_a_new_one_is_not_converted_and_no_mistake(tmp_path):
    text = "wide:\n  about: x\n  forward: x @ x.T\n  " + INPUT.strip().replace("\n", "\n  ")
    text += "\n  export: {torchscript: [11, 17]}\n  precisions: {int8: {}}\n"
    assert problems_of(tmp_path, text) == []


# ---- calibration from files --------------------------------------------------------------------------------

GOOD = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")


def with_value(value: float) -> Any:
    data = GOOD.copy()
    data[20, 1] = value
    return data


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def from_data(name: str = "data.npy", method: str = "minmax") -> str:
    return f"int8: {{calibration: {{data: {name}, method: {method}}}}}"


def test_sound_files_calibrate(bench):
    record = run(bench, body_of(says=from_data()), files={"data.npy": GOOD})
    assert verdict(record) == PASSED
    assert record.conversion["calibration"]["source"] == "data.npy"
    packed = run(bench, body_of(says=from_data("data.npz")), files={"data.npz": npz(x=GOOD, more=GOOD)})
    assert verdict(packed) == PASSED
    assert packed.conversion["calibration"]["sha"] == record.conversion["calibration"]["sha"]


@pytest.mark.parametrize("data, part", [
    pytest.param(GOOD[:, 0].copy(), "x has shape (8,), declared is float32[batch, 4]", id="an axis less"),
    pytest.param(GOOD[None], "x has shape (1, 32, 4), declared is", id="an axis more"),
    pytest.param(GOOD[:, :3].copy(), "x has shape (8, 3), declared is float32[batch, 4]", id="narrow"),
    pytest.param(GOOD.astype("float64"), "x is float64, declared is float32[batch, 4]", id="float64"),
    pytest.param(GOOD.astype("int32"), "x is int32, declared is float32", id="integers"),
    pytest.param(np.zeros(32, dtype=[("a", "f4")]), "declared is float32[batch, 4]", id="records"),
    pytest.param(GOOD[:3], "3 samples are too few to calibrate with; at least 8", id="few"),
    pytest.param(GOOD[:0], "0 samples are too few", id="none"),
    pytest.param(with_value(np.nan), "x: batch 2 has a NaN or an infinity", id="NaN"),
    pytest.param(with_value(-np.inf), "x: batch 2 has a NaN or an infinity", id="infinity"),
    pytest.param(np.ones((32, 4), "float32"), "every value is 1; constant data", id="constant"),
    pytest.param(b"no array at all", "cannot be read", id="corrupt"),
    pytest.param(b"", "cannot be read", id="empty"),
    pytest.param(npy(GOOD)[:200], "cannot be read", id="cut off"),
    pytest.param(pickle.dumps(GOOD), "cannot be read", id="pickled"),
    pytest.param(np.array([{"a": 1}, None], dtype=object), "cannot be read", id="objects"),
    pytest.param(None, "there is no", id="missing"),
    pytest.param(np.float32(3), "data.npy", id="0-d"),
])  # fmt: skip
@pytest.mark.parametrize("check", ["fidelity", "accuracy"])
def test_a_calibration_file_that_is_none_is_named_with_what_is_wrong(bench, check, data, part):
    files = {} if data is None else {"data.npy": data}
    record = run(bench, body_of(says=from_data()), check=check, files=files)
    assert_stopped(record, "declare", "BadCalibration", "case", "calibration: ", "data.npy", part)


@pytest.mark.parametrize("data, part", [
    pytest.param(npz(y=GOOD), "has no array x; it has y", id="another name"),
    pytest.param(npz(), "has no array x", id="no array"),
    pytest.param(npz(x=GOOD)[:150], "data.npz", id="cut off"),
    pytest.param(npz(x=GOOD).replace(GOOD[3].tobytes(), GOOD[4].tobytes()), "data.npz", id="damaged"),
    pytest.param(npz(x=np.array([{}] * 8, dtype=object)), "data.npz", id="pickled"),
])  # fmt: skip
def test_a_packed_calibration_file_that_is_none_is_named_with_what_is_wrong(bench, data, part):
    record = run(bench, body_of(says=from_data("data.npz")), files={"data.npz": data})
    assert_stopped(record, "declare", "BadCalibration", "case", "calibration: ", "data.npz", part)


TWO = 'inputs: {x: "float32[batch, n]", y: "float32[batch, n]"}\ndims: {batch: 1..4, n: 2..6}'


@pytest.mark.parametrize("data, part", [
    pytest.param(npz(x=GOOD, y=GOOD[:9]), "9 and 32 samples", id="lengths"),
    pytest.param(npz(x=GOOD), "has no array y", id="one is missing"),
    pytest.param(npz(x=GOOD, y=GOOD[:, :3]), "", id="a dim of two sizes"),
])  # fmt: skip
def test_arrays_of_several_inputs_have_to_fit_one_another(bench, data, part):
    body = body_of(TWO, from_data("data.npz"), "forward: x @ y.T")
    record = run(bench, body, files={"data.npz": data})
    assert_stopped(record, "declare", "BadCalibration", "case", "calibration: ", "data.npz", part)


def test_one_array_for_several_inputs_is_refused(bench):
    record = run(bench, body_of(TWO, from_data(), "forward: x @ y.T"), files={"data.npy": GOOD})
    assert_stopped(record, "declare", "BadCalibration", "case", "the case has the inputs x, y; give a .npz")


@pytest.mark.parametrize("inputs, export, data", [
    pytest.param(INPUT.replace(", 4]", ", n]").replace("1..4", "1..4, n: 4"), "", GOOD[:, :3].copy(), id="one size"),
    pytest.param(INPUT, "export: {torchscript: {opsets: [17], static: batch}}", GOOD, id="static"),
])  # fmt: skip
def test_data_of_sizes_that_the_model_does_not_take_is_the_cases_fault(bench, inputs, export, data):
    record = run(bench, body_of(inputs, from_data(), more=export), files={"data.npy": data})
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


def test_a_file_of_an_unknown_kind_is_named(bench):
    record = run(bench, body_of(says=from_data("data.txt")), files={"data.txt": b"1 2 3"})
    assert_stopped(record, "declare", record.error, "case", "data.txt", ".npy")


# ---- calibration from Python -------------------------------------------------------------------------------

ARRAY = "rng.normal(size=(8, 4)).astype('float32')"


@pytest.mark.parametrize("function, error, part", [
    pytest.param("def data(rng):\n    raise RuntimeError('planted')\n    yield", "RuntimeError",
                 "planted (beside.py:", id="raises"),
    pytest.param(f"def data(rng):\n    yield {{'x': {ARRAY}}}\n    raise RuntimeError('planted')", "RuntimeError",
                 "planted (beside.py:", id="raises later"),
    pytest.param("def data(rng):\n    raise SystemExit(3)\n    yield", "SystemExit", "beside.py:", id="exits"),
    pytest.param("def data(rng):\n    return\n    yield", "BadCalibration", "beside.data: 0 samples are too few",
                 id="yields nothing"),
    pytest.param(f"def data(rng):\n    yield {{'x': {ARRAY}[:4]}}", "BadCalibration", "4 samples are too few",
                 id="yields little"),
    pytest.param(f"def data(rng):\n    yield {ARRAY}", "BadCalibration", "not ndarray", id="yields an array"),
    pytest.param("def data(rng):\n    yield None", "BadCalibration", "not NoneType", id="yields None"),
    pytest.param(f"def data(rng):\n    yield {{'y': {ARRAY}}}", "BadCalibration", "has no array x", id="other name"),
    pytest.param("def data(rng):\n    yield {'x': 'text'}", "BadCalibration", "beside.data: x is <U4", id="text"),
    pytest.param("def data(rng):\n    yield {'x': None}", "BadCalibration", "x is object", id="None"),
    pytest.param("def data(rng):\n    yield {'x': [[1.0, 2.0, 3.0, 4.0]] * 9}", "BadCalibration", "x is float64",
                 id="lists"),
    pytest.param(f"def data(rng):\n    return {{'x': {ARRAY}}}", "BadCalibration", "mappings", id="a mapping"),
    pytest.param(f"def data(rng):\n    yield {{'x': {ARRAY} * float('nan')}}", "BadCalibration", "batch 0 has a NaN",
                 id="NaN"),
    pytest.param(f"def data(rng):\n    yield {{'x': {ARRAY}}}\n    yield {{'x': {ARRAY}[:, :3]}}", "BadCalibration",
                 "x has shape (8, 3)", id="another shape later"),
    pytest.param("def datum(rng):\n    yield", "MissingName", "did you mean 'datum'?", id="misspelt"),
    pytest.param("def data(rng) yield", "SyntaxError", "beside.py does not import", id="syntax"),
    pytest.param("def data(rng):\n    yield {'x': [[1.0], [2.0, 3.0]]}", "BadCalibration", "beside.data: x",
                 id="ragged"),
    pytest.param("def data(rng):\n    return None", "BadCalibration", "beside.data", id="returns None"),
    pytest.param("def data():\n    yield", "BadCalibration", "beside.data", id="takes nothing"),
    pytest.param("data = 3", "BadCalibration", "beside.data", id="no function"),
    pytest.param("def data(rng):\n    for _ in range(10_000):\n        yield {'x': np.zeros((0, 4), 'float32')}\n"
                 "    raise AssertionError('it would have gone on')", "BadCalibration", "beside.data",
                 id="empty batches without end"),
])  # fmt: skip
def test_a_generator_that_gives_no_calibration_data_is_the_cases_fault_in_one_line(bench, function, error, part):
    record = run(bench, body_of(says=from_data("beside.data")), module("self.w(x)", function))
    assert_stopped(record, "declare", error, "case", part)


@pytest.mark.parametrize("wrap", ["torch.from_numpy(found)", "found", "np.asfortranarray(found)"])
def test_what_a_generator_may_give_besides_plain_arrays(bench, wrap):
    function = f"def data(rng):\n    while True:\n        found = {ARRAY}\n        yield {{'x': {wrap}, 'label': 3}}"
    record = run(bench, body_of(says=from_data("beside.data")), module("self.w(x)", function))
    assert verdict(record) == PASSED
    assert record.conversion["calibration"]["samples"] == 32


STEPS = """
    for k in range(1, 5):
        buffer = {new}
        buffer[:] = np.arange(4) * k
        yield {{'x': buffer}}
"""


def test_a_generator_may_use_one_buffer_for_all_its_batches(bench):
    shas = []
    for new in ("np.empty((8, 4), 'float32')", "same"):
        function = "def data(rng):\n    same = np.empty((8, 4), 'float32')" + STEPS.format(new=new)
        record = run(bench, body_of(says=from_data("beside.data")), module("self.w(x)", function))
        shas.append(record.conversion["calibration"]["sha"])
    assert shas[0] == shas[1]


# ---- values that are not finite inside the model -----------------------------------------------------------

POSITIVE = INPUT.replace('"float32[batch, 4]"', '{type: "float32[batch, 4]", values: {uniform: {low: 0.5, high: 1}}}')


def one_logarithm(bench: Bench, method: str, value: float, sample: int) -> Record:
    data = np.abs(GOOD) + np.float32(0.1)
    data[sample, 2] = value
    body = body_of(POSITIVE, from_data(method=method))
    return run(bench, body, module("self.w(torch.log(x))"), files={"data.npy": data})


@pytest.mark.parametrize("sample", [7, 20])
@pytest.mark.parametrize("value", [0.0, -1.0])
@METHODS
def test_values_inside_the_model_that_are_not_finite_make_no_range(bench, method, value, sample):
    record = one_logarithm(bench, method, value, sample)
    assert_stopped(record, "convert", "BadRange", "case", "values inside the model are not finite", "calibration")
    assert one_logarithm(bench, method, 0.5, sample).stage != "convert"


@METHODS
def test_the_value_that_is_not_finite_is_named(bench, method):
    record = one_logarithm(bench, method, 0.0, 7)
    assert verdict(record) == ("failed", "convert", "BadRange", "case")
    assert "range" not in record.reason.rpartition(": ")[2]


# ---- operators of a domain of one's own --------------------------------------------------------------------

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
    record = run(bench, body_of(says=f"{precision}: {{}}", more=SYMBOLIC), NOBODYS)
    assert (record.status, record.stage) == ("failed", "load")
    assert_clear(record)
    assert "planted:Asinh" in record.reason


@CONVERTED
def test_an_exported_model_that_does_not_load_is_not_the_precisions_fault(bench, precision):
    record = run(bench, body_of(says=f"{precision}: {{}}", more=SYMBOLIC), NOBODYS)
    assert record.fault == "exporter"  # as in fp32
    assert "augmented.onnx" not in record.reason  # a temporary file of the calibrator's


def test_the_folder_of_the_case_is_left_as_it_was(bench):
    (cell,) = (one for one in bench.cells(body_of(), LINEAR) if one.check == "fidelity")
    before = sorted(file.name for file in Path(cell.case.folder).iterdir())
    assert verdict(bench.run_cell(cell, examples=1)) == PASSED
    assert sorted(file.name for file in Path(cell.case.folder).iterdir() if file.name != "__pycache__") == before
