"""Prints ``docs/case-reference.md`` from the models of case files, so that it cannot go stale."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from conformance.case.files import deploy, export_keys, inputs, limits, metric, precision, sampled, stepwise
from conformance.case.files import must_hold as holds
from conformance.case.files.declaration import Declaration

INTRO = f"""# Case files

<!-- Generated: python docs/make_reference.py > docs/case-reference.md -->

A case file is YAML 1.2: a mapping from case names to cases, and optionally `defaults`, which every case of the file
starts from (mappings are merged; `null` takes a default away). Names of cases are unique over all files. Unknown keys
are errors. Tags, anchors, merges and directives are not allowed, nor are characters that cannot be printed.

A file has at most {limits.FILE_KIB} KiB, {limits.TOKENS:,} keys, values and brackets, nested {limits.DEPTH} deep;
{limits.CASES:,} cases, where each combination of `vary` is one; and {limits.CELLS:,} cells. Inputs, dims, conditions,
precisions, budgets, `fails` and `graph` have at most {limits.ENTRIES} entries each, and the name of a case with the
values of `vary` {limits.NAME} bytes. The shipped files are far below all of these; a larger file is divided into
several. What is wrong with a file, or beyond a limit, is one failing test of that file, and all other files run.

Small texts:

- **type**: `float32[batch, 2*groups]`, a NumPy dtype and a shape; `float32[]` is 0-d. In `{{ }}` it needs quotes.
- **size**: a whole number or an expression over dims and whole numbers of `with`: `n`, `2*n`, `n - 1`, `min(h, w)`.
- **range**: `4`, `1..64`, `32..256 step 32`, `1..n`; both ends are included.
- **file.name**: `symbolics.asinh` is `asinh` in the `symbolics.py` beside the case file.
- **opsets**: `17`, `[9, 12]`, `"< 19"`, `">= 17"`, `"13..16"`.
- **budget**: a relation such as `1.2 x pytorch`, or a time such as `5 ms`.

Where a list is expected, its only item may stand alone. An input, an output, a symbolic and an exporter have a short
form: the type, the name, the function and the list of opsets.

The Python that a case names, and its `forward` expression, is code that runs.
"""

ORDER = (
    (Declaration, "A case"),
    (sampled.FromSamples, "samples"),
    (inputs.Input, "inputs: NAME"),
    (inputs.Values, "inputs: NAME: values"),
    (inputs.Between, "uniform, integers"),
    (inputs.Normal, "normal"),
    (holds.Output, "outputs"),
    (holds.Rows, "outputs: rows"),
    (export_keys.Export, "export"),
    (export_keys.TorchScript, "export: torchscript"),
    (export_keys.Dynamo, "export: dynamo"),
    (export_keys.OnnxFile, "export: onnx"),
    (export_keys.Symbolic, "symbolics, registers: OPERATOR"),
    (export_keys.TorchScriptOptions, "export: torchscript: options"),
    (export_keys.DynamoOptions, "export: dynamo: options"),
    (holds.GraphAssertion, "graph"),
    (precision.PrecisionSettings, "precisions: NAME"),
    (precision.Calibration, "precisions: NAME: calibration"),
    (precision.Exclude, "precisions: NAME: exclude"),
    (holds.PrecisionTolerance, "tolerance: PRECISION"),
    (holds.OutputTolerance, "tolerance: PRECISION: outputs: NAME"),
    (metric.Metric, "metric"),
    (metric.Preprocess, "preprocess"),
    (deploy.OnnxRuntime, "onnxruntime"),
    (deploy.TensorRT, "tensorrt"),
    (deploy.Latency, "latency"),
    (holds.Fails, "fails"),
    (holds.When, "when"),
    (holds.Processor, "when: cpu"),
    (inputs.ExampleLimits, "examples"),
    (stepwise.Steps, "steps"),
)

_TYPES = {
    "Expression": "size",
    "Range": "range",
    "TensorType": "type",
    "frozenset[int]": "opsets",
    "Budget": "budget",
}


def reference() -> str:
    """The whole document."""
    return "\n".join([INTRO, *(line for model, title in ORDER for line in _section(model, title))])


def _section(model: type[BaseModel], title: str) -> Iterator[str]:
    yield f"\n## {title}\n"
    if model.__doc__ and "..." not in model.__doc__:
        yield f"{_one_line(model.__doc__)}\n"
    yield "| key | value | default | meaning |"
    yield "|---|---|---|---|"
    for name, field in model.model_fields.items():
        if name == "call":  # which is made of ``inputs``
            continue
        yield f"| `{field.alias or name}` | {_type(field.annotation)} | {_default(field)} | {_meaning(field)} |"


def _meaning(field: FieldInfo) -> str:
    return _one_line(field.description or "").replace("|", "\\|")


def _one_line(text: str) -> str:
    return " ".join(text.replace("``", "`").split())


def _type(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is None or annotation is type(None):
        return ""
    if origin is Literal:
        return " or ".join(f"`{str(word).lower() if isinstance(word, bool) else word}`" for word in arguments)
    if origin is list:
        return f"list of {_type(arguments[0])}"
    if origin is dict:
        return f"mapping to {_type(arguments[1])}"
    if str(annotation) in _TYPES:
        return _TYPES[str(annotation)]
    if hasattr(annotation, "__metadata__"):
        return _type(arguments[0])
    if arguments:
        return " or ".join(dict.fromkeys(filter(None, map(_type, arguments))))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "mapping"
    names = {"str": "text", "int": "whole number", "float": "number", "bool": "true or false", "Any": "anything"}
    name = str(getattr(annotation, "__name__", annotation))
    return _TYPES.get(name, names.get(name, name))


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default is None or field.default in ({}, []) or isinstance(field.default, BaseModel):
        return ""
    if isinstance(field.default, list):
        return ", ".join(f"`{item}`" for item in field.default)
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"


if __name__ == "__main__":
    print(reference())
