"""Model how a case is converted to fp16 and int8."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from conformance.case.files.field_types import DottedName, FilesBeside, Listed, Positive, Says
from conformance.case.files.limits import DRAWN

INT8_OPSET = 13
"""The first opset whose QuantizeLinear and DequantizeLinear have an axis."""


class Calibration(Says):
    """The inputs that ranges are measured on."""

    method: Literal["minmax", "entropy", "percentile"] = "minmax"
    """int8: how a range is made of what was measured."""
    percentile: float = Field(99.99, gt=50, le=100)
    """With ``method: percentile``, the share of values inside the range, in percent."""
    samples: int = Field(32, ge=8, le=DRAWN)
    """The number of samples in all; with ``data``, how many are taken of it."""
    batch: int = Field(8, ge=1, le=DRAWN)
    """The number of samples that the model sees at once, where the case has a dim that is the first of all inputs."""
    at: dict[str, Positive] = {}
    """Sizes of dims besides the batch; dims left out are as in the export."""
    data: str | None = None
    """Instead of plain draws of the case: a ``.npy`` or ``.npz`` file beside the case file (samples along the first
    axis, by input name), or ``file.function``, a Python function ``f(rng)`` that yields batches as
    ``{input: array}``."""


class Exclude(Says):
    """Name what stays in fp32, by exporter, since exporters name nodes differently."""

    torchscript: Listed[str] = []
    """Names of nodes, patterns such as ``/head/*``, or operators such as ``LayerNormalization``."""
    dynamo: Listed[str] = []
    """Names of nodes, patterns such as ``node_conv2d*``, or operators such as ``LayerNormalization``."""

    onnx: Listed[str] = []
    """The same of a model that the case names under ``onnx``."""


def _spell_out_exclude(value: object) -> object:
    return {"torchscript": value, "dynamo": value, "onnx": value} if isinstance(value, (str, list)) else value


class PrecisionSettings(Says):
    """Set how the model is converted to a precision, or which file has it converted.

    ``operators`` and ``reduce_range`` are for int8 alone.
    """

    left_out: str | None = Field(None, min_length=1)
    """Why this case has no such precision."""
    file: FilesBeside | None = None
    """The model as somebody else has converted it, ONNX with the same inputs and outputs. It is compared with the
    original, and runtimes with what it means itself. Of a file also bf16, int4, int2, fp8 and fp4."""
    by: DottedName | None = None
    """A Python function ``f(file, batches)`` beside the case that converts the exported model: given its file and
    calibration inputs, it returns an ONNX model or the path of one."""
    opsets: Annotated[Listed[int], Field(min_length=1)] | None = None
    """Which of the exported models are converted; the default is the highest opset of each exporter."""
    exclude: Annotated[
        Exclude, BeforeValidator(_spell_out_exclude, json_schema_input_type=Exclude | list[str] | str)
    ] = Exclude()
    """What stays in fp32. An entry that matches nothing is an error."""
    operators: Listed[str] | None = None
    """int8: the operators that are quantized; the default is Conv, ConvTranspose, MatMul and Gemm."""
    reduce_range: bool = False
    """int8: weights of 7 bits, whose sums of products fit the 16 bits of x86 processors without VNNI."""
    calibration: Calibration = Calibration()
    """The inputs that ranges are measured on (int8), and that overflow is looked for with (fp16)."""

    @property
    def of_others(self) -> bool:
        """Return whether somebody else converts, and the suite only looks at what came of it."""
        return self.file is not None or self.by is not None
