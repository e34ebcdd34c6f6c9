"""Converters that people use, each by its usual call: ``python convert.py FOLDER CONVERTER:NETWORK ...``, run by the
Python that has the converter, makes ``CONVERTER-NETWORK.onnx`` of ``NETWORK.onnx`` in the folder.

Nothing of the suite is imported, so that an environment needs the converter alone. A converter that does not take a
network is told, with the first line of its message, and makes no file.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx

CALIBRATED = 16
"""Batches of two, of standard normal values, that a calibration sees."""


def data(file: Path) -> list[dict[str, Any]]:
    """Inputs for a network: what it is calibrated with."""
    rng = np.random.default_rng(0)
    batches = []
    (x,) = onnx.load(file).graph.input
    shape = [dim.dim_value or 2 for dim in x.type.tensor_type.shape.dim]
    for _ in range(CALIBRATED):
        floats = x.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
        array = rng.standard_normal(shape).astype(np.float32) if floats else rng.integers(0, 40, shape)
        batches.append({x.name: array})
    return batches


class _Reader:
    def __init__(self, file: Path) -> None:
        self._left: Iterator[dict[str, Any]] = iter(data(file))

    def get_next(self) -> dict[str, Any] | None:
        return next(self._left, None)


def static(file: Path, out: Path, **more: Any) -> None:
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    ready = out.with_suffix(".ready.onnx")
    quant_pre_process(str(file), str(ready))
    form = QuantFormat[more.pop("form", "QDQ")]
    kinds = {key: QuantType[more.pop(key, "QUInt8")] for key in ("activation_type", "weight_type")}
    quantize_static(str(ready), str(out), _Reader(file), quant_format=form, **kinds, **more)
    ready.unlink()


def dynamic(file: Path, out: Path, **more: Any) -> None:
    from onnxruntime.quantization import quantize_dynamic

    quantize_dynamic(str(file), str(out), **more)


def nbits(file: Path, out: Path, *, form: str = "QOperator", **more: Any) -> None:
    from onnxruntime.quantization import QuantFormat
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    made = MatMulNBitsQuantizer(onnx.load(file), block_size=16, quant_format=QuantFormat[form], **more)
    made.process()
    made.model.save_model_to_file(str(out))


def common_fp16(file: Path, out: Path, **more: Any) -> None:
    from onnxconverter_common import float16

    onnx.save(float16.convert_float_to_float16(onnx.load(file), **more), out)


def ort_fp16(file: Path, out: Path, **more: Any) -> None:
    from onnxruntime.transformers.float16 import convert_float_to_float16

    onnx.save(convert_float_to_float16(onnx.load(file), **more), out)


def nncf_int8(file: Path, out: Path, **more: Any) -> None:
    import nncf

    batches = nncf.Dataset(data(file))
    onnx.save(nncf.quantize(onnx.load(file), batches, subset_size=CALIBRATED, **more), out)


def nncf_weights(file: Path, out: Path, mode: str, **more: Any) -> None:
    import nncf

    model = onnx.load(file)
    kind = nncf.CompressWeightsMode[mode]
    onnx.save(nncf.compress_weights(model, mode=kind, **more), out)


def autocast(file: Path, out: Path, precision: str) -> None:
    from modelopt.onnx.autocast import convert_to_mixed_precision

    onnx.save(convert_to_mixed_precision(str(file), low_precision_type=precision), out)


def modelopt(file: Path, out: Path, mode: str) -> None:
    from modelopt.onnx.quantization import quantize

    array = np.concatenate([next(iter(each.values())) for each in data(file)])
    quantize(str(file), quantize_mode=mode, calibration_data=array, output_path=str(out),
             calibration_method="max" if mode != "int4" else "rtn_dq")  # fmt: skip


def quark(file: Path, out: Path, config: str) -> None:
    from quark.onnx import ModelQuantizer
    from quark.onnx.quantization.config import Config, get_default_config

    made = ModelQuantizer(Config(global_quant_config=get_default_config(config)))
    made.quantize_model(str(file), str(out), _Reader(file))


CONVERTERS: dict[str, Callable[[Path, Path], None]] = {
    "static-qdq": static,
    "static-s8": lambda file, out: static(file, out, activation_type="QInt8", weight_type="QInt8", per_channel=True),
    "static-qoperator": lambda file, out: static(file, out, form="QOperator", weight_type="QInt8"),
    "dynamic": dynamic,
    "dynamic-channel": lambda file, out: dynamic(file, out, per_channel=True, reduce_range=True),
    "int4": nbits,
    "int4-level4": lambda file, out: nbits(file, out, accuracy_level=4),
    "int4-qdq": lambda file, out: nbits(file, out, form="QDQ", is_symmetric=True),
    "int2": lambda file, out: nbits(file, out, bits=2),
    "int8-weights": lambda file, out: nbits(file, out, bits=8),
    "ort-fp16": ort_fp16,
    "common-fp16": common_fp16,
    "common-fp16-io32": lambda file, out: common_fp16(file, out, keep_io_types=True),
    "nncf": nncf_int8,
    "nncf-int8-weights": lambda file, out: nncf_weights(file, out, "INT8_ASYM"),
    "nncf-int4-weights": lambda file, out: nncf_weights(file, out, "INT4_SYM", group_size=16, all_layers=True),
    "autocast-fp16": lambda file, out: autocast(file, out, "fp16"),
    "autocast-bf16": lambda file, out: autocast(file, out, "bf16"),
    "modelopt-int8": lambda file, out: modelopt(file, out, "int8"),
    "modelopt-int4": lambda file, out: modelopt(file, out, "int4"),
    "quark-a8w8": lambda file, out: quark(file, out, "A8W8"),
    "quark-xint8": lambda file, out: quark(file, out, "XINT8"),
}


def main() -> None:
    """Print a line of JSON for each: the name, and the message of what was not taken."""
    logging.disable(logging.WARNING)
    folder = Path(sys.argv[1])
    for name in sys.argv[2:]:
        converter, network = name.split(":")
        out = folder / f"{converter}-{network}.onnx"
        problem = ""
        try:
            CONVERTERS[converter](folder / f"{network}.onnx", out)
        except Exception as error:  # of any kind: a converter that does not take a network is no fault of the suite
            problem = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        print(json.dumps({"name": name, "problem": problem}), flush=True)


if __name__ == "__main__":
    main()
