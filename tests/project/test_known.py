"""``known.csv`` and the scripts of ``findings``: each names the other, or it is said why no cell can meet it."""

from benchmarks.common import ROOT
from conformance.results.records import known
from conformance.results.records.environment import versions
from conformance.results.records.processor import INSTRUCTIONS
from conformance.runtimes import registry

PREFIXES = ("evaluator-", "runtime-", "openvino-", "tensorrt-parser-", "torchscript-", "exporters-", "dynamo-",
            "dynamic-quantization-", "quantize-static-", "half-converter-puts-")  # fmt: skip
"""How the scripts begin that are about an exporter, a runtime of the suite, or what converts models in it."""
NOT_MET = {
    "dynamo-output-named-like-its-input": "such a graph has no operator, and the sentence of onnx says what is wrong",
    "dynamo-writes-opset-18-for-26": "the check of the model says which opset it is at, and which was asked for",
    "evaluator-takes-overloads-for-one": "the operator is a function, of any name",
    "half-converter-puts-casts-last": "the suite sorts the nodes",
    "openvino-attention-of-nothing-in-bfloat16": "a row knows no types, and in float32 it is right",
    "openvino-bfloat16-weights-as-integers": "exporters keep weights as bytes",
    "openvino-eight-bit-products-saturate": "a record says so by its cause",
    "openvino-folds-a-scale-wrongly": "no cell runs with that property: it is asked for the cause of a red",
    "openvino-leaves-out-quantization-to-16-bits": "a row knows no types, and of 8 bits it is not so",
    "openvino-mixes-two-threads": "a cell calls a session from one thread",
    "openvino-reads-bfloat16-as-float16": "the suite gives it the bits",
    "openvino-sums-of-bytes-saturate": "values that overflow are not drawn for such operators",
    "quantize-static-gemm-with-factors": "the suite keeps such a Gemm from the quantizer",
    "quantize-static-name-of-unclipped-values": "nothing is compared by names of tensors inside",
    "quantize-static-of-half-precision": "the suite quantizes models in float32 alone",
    "quantize-static-with-an-infinity": "the suite refuses such a calibration (BadRange)",
    "runtime-assignment-without-types": "it is about a list, and no value",
    "runtime-precise-products-of-a-shared-zero": "the suite asks with a zero point for each weight",
    "runtime-tanh-exceeds-one": "it is within the tolerance, and what comes of it is another operator's",
    "tensorrt-parser-narrows-doubles": "such a cell is skipped, and says that TensorRT has no float64",
    "tensorrt-parser-takes-more-than-documented": "what is accepted fails nowhere",
}


def test_each_script_about_what_cells_run_has_a_row_or_a_reason():
    scripts = {script.stem for script in (ROOT / "findings").glob("*.sh")}
    listed = {one.name.removeprefix("findings/") for one in known.table() if one.name.startswith("findings/")}
    assert listed <= scripts and not listed & {*NOT_MET}
    assert {name for name in scripts if name.startswith(PREFIXES)} <= listed | {*NOT_MET} <= scripts


def test_rows_are_of_what_records_can_hold():
    exporters, runtimes = {"torchscript", "dynamo"}, {entry.name for entry in registry.RUNTIMES if entry.in_cases}
    errors = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
    for one in known.table():
        assert one.package in versions() and one.who <= exporters | runtimes, one
        of_torch = {name for name in one.operators if name.startswith("aten.")}
        assert one.operators and of_torch in (one.operators if one.who <= exporters else set(), set()), one
        assert all(f"`{error}`" in errors or error in ("ValueError", "RuntimeError") for error in one.errors), one
        assert one.errors and (one.when in ("", "integer") or one.when.removeprefix("lacks ") in INSTRUCTIONS), one
        assert one.versions and any(spec.operator in ("==", "<=", "<") for spec in one.versions), one
    rows = known.FILE.read_text(encoding="utf-8").splitlines()
    assert len(rows) == len({*rows}) and all(len(row) <= 200 for row in rows)
