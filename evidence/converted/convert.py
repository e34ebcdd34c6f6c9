"""Converters that people use, each by its usual calls: ``python convert.py FOLDER CONVERTER:NETWORK ...``, run by the
Python that has the converter, makes ``CONVERTER-NETWORK.onnx`` of ``NETWORK.onnx`` in the folder.

Nothing of the suite is imported but by ``suite``, so that an environment needs the converter alone. A converter that
does not take a network is told, with the first line of its message, and makes no file.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import tempfile
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
    batches: list[dict[str, Any]] = []
    for _ in range(CALIBRATED):
        batch = {}
        for one in onnx.load(file).graph.input:
            sizes = {"past": 5, "count": 3}
            shape = [dim.dim_value or sizes.get(dim.dim_param, 2) for dim in one.type.tensor_type.shape.dim]
            floats = one.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
            batch[one.name] = rng.standard_normal(shape).astype(np.float32) if floats else rng.integers(0, 40, shape)
        batches.append(batch)
    return batches


class _Reader:
    def __init__(self, file: Path) -> None:
        self._left: Iterator[dict[str, Any]] = iter(data(file))

    def get_next(self) -> dict[str, Any] | None:
        return next(self._left, None)


def static(file: Path, out: Path, **more: Any) -> None:
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    ready = out.with_suffix(".ready.onnx")
    quant_pre_process(str(file), str(ready), skip_symbolic_shape=True)
    form, method = QuantFormat[more.pop("form", "QDQ")], CalibrationMethod[more.pop("method", "MinMax")]
    kinds = {key: QuantType[more.pop(key, "QUInt8")] for key in ("activation_type", "weight_type")}
    quantize_static(str(ready), str(out), _Reader(file), quant_format=form, calibrate_method=method, **kinds, **more)
    ready.unlink()


def dynamic(file: Path, out: Path, **more: Any) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    kind = QuantType[more.pop("weight_type", "QInt8")]
    quantize_dynamic(str(file), str(out), weight_type=kind, **more)


def nbits(file: Path, out: Path, *, form: str = "QOperator", block_size: int = 16, **more: Any) -> None:
    from onnxruntime.quantization import QuantFormat, matmul_nbits_quantizer

    if "algorithm" in more:
        kind = getattr(matmul_nbits_quantizer, f"{more.pop('algorithm')}WeightOnlyQuantConfig")
        more["algo_config"] = kind(quant_format=QuantFormat[form], block_size=block_size)
    made = matmul_nbits_quantizer.MatMulNBitsQuantizer(
        onnx.load(file), block_size=block_size, quant_format=QuantFormat[form], **more)  # fmt: skip
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
    if "model_type" in more:
        more["model_type"] = nncf.ModelType[more["model_type"]]
    onnx.save(nncf.quantize(onnx.load(file), batches, subset_size=CALIBRATED, **more), out)


def nncf_weights(file: Path, out: Path, mode: str, *, seen: bool = False, **more: Any) -> None:
    import nncf

    model = onnx.load(file)
    kind = nncf.CompressWeightsMode[mode]
    batches = nncf.Dataset(data(file)) if seen else None
    onnx.save(nncf.compress_weights(model, mode=kind, dataset=batches, **more), out)


def autocast(file: Path, out: Path, precision: str, **more: Any) -> None:
    from modelopt.onnx.autocast import convert_to_mixed_precision

    onnx.save(convert_to_mixed_precision(str(file), low_precision_type=precision, **more), out)


def modelopt(file: Path, out: Path, mode: str, method: str = "") -> None:
    from modelopt.onnx.quantization import quantize

    array = np.concatenate([next(iter(each.values())) for each in data(file)])
    quantize(str(file), quantize_mode=mode, calibration_data=array, output_path=str(out),
             calibration_method=method or ("max" if mode != "int4" else "rtn_dq"))  # fmt: skip


def olive(file: Path, out: Path, name: str, **more: Any) -> None:
    os.environ["OLIVE_DISABLE_TELEMETRY"] = "1"
    from olive.workflows import run

    with tempfile.TemporaryDirectory() as folder:
        run({"input_model": {"type": "ONNXModel", "model_path": str(file)}, "output_dir": folder,
             "cache_dir": f"{folder}/cache", "passes": {"only": {"type": name, **more}}})  # fmt: skip
        shutil.copy(f"{folder}/model.onnx", out)


def quark(file: Path, out: Path, spec: str) -> None:
    import quark.onnx as quark

    one = getattr(quark, spec)
    config = quark.QConfig(quark.QLayerConfig(activation=one(), weight=one()))
    quark.ModelQuantizer(config).quantize_model(str(file), str(out), _Reader(file))


def torchao_weights(file: Path, out: Path, bits: int) -> None:
    """Quantize the weights of the module that the file was exported from, and export it by the same exporter: of
    small ones, by TorchScript of all, it makes floats."""
    import torch
    from networks import networks
    from torchao.quantization import Int8WeightOnlyConfig, IntxWeightOnlyConfig, quantize_
    from torchao.quantization.granularity import PerGroup

    net, example = networks()[file.stem.removesuffix("-21")]
    quantize_(net, Int8WeightOnlyConfig() if bits == 8 else IntxWeightOnlyConfig(torch.int4, PerGroup(16)))
    says = {"input_names": ["x"], "output_names": ["y"], "verbose": False}
    if file.stem.endswith("-21"):
        dims = ({0: torch.export.Dim("batch")},)
        torch.onnx.export(net, example, out, dynamo=True, opset_version=21, external_data=False,
                          dynamic_shapes=dims, **says)  # fmt: skip
    else:
        torch.onnx.export(net, example, out, dynamo=False, opset_version=17,
                          dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}}, **says)  # fmt: skip


def torchao(file: Path, out: Path) -> None:
    """Quantize the module that the file was exported from, and export it by dynamo."""
    import torch
    from networks import networks
    from torchao.quantization.pt2e import quantize_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    net, example = networks()[file.stem.removesuffix("-21")]
    dims = ({0: torch.export.Dim("batch")},)
    how = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config())
    net = quantize_pt2e.prepare_pt2e(torch.export.export(net, example, dynamic_shapes=dims).module(), how)
    for batch in data(file):
        net(*map(torch.tensor, batch.values()))
    net = quantize_pt2e.convert_pt2e(net)
    torch.onnx.export(net, example, out, dynamo=True, opset_version=21, input_names=["x"], output_names=["y"],
                      external_data=False, verbose=False, dynamic_shapes=dims)  # fmt: skip


def suite(file: Path, out: Path, precision: str, **says: Any) -> None:
    """Precisions to which ``conformance check`` itself converts."""
    from conformance.case.files.precision import PrecisionSettings
    from conformance.models.precision.calibration import Feeds
    from conformance.models.precision.convert import convert, source

    batches = data(file)
    feeds = Feeds(batches, "drawn", 2 * len(batches), 2, "")
    onnx.save(convert(source(file, precision, PrecisionSettings.model_validate(says), "onnx"), feeds)[0], out)


def _by(function: Callable[..., None], *given: Any, **more: Any) -> Callable[[Path, Path], None]:
    return lambda file, out: function(file, out, *given, **more)


S8 = {"activation_type": "QInt8", "weight_type": "QInt8"}
CONVERTERS: dict[str, Callable[[Path, Path], None]] = {
    "static-qdq": static,
    "static-s8": _by(static, per_channel=True, **S8),
    "static-u8s8": _by(static, weight_type="QInt8", per_channel=True),
    "static-entropy": _by(static, method="Entropy", weight_type="QInt8"),
    "static-percentile": _by(static, method="Percentile", **S8),
    "static-symmetric": _by(static, extra_options={"ActivationSymmetric": True, "WeightSymmetric": True}, **S8),
    "static-reduced": _by(static, weight_type="QInt8", reduce_range=True),
    "static-16": _by(static, activation_type="QUInt16", extra_options={"UseQDQContribOps": True}),
    "static-qoperator": _by(static, form="QOperator", weight_type="QInt8"),
    "static-qoperator-channel": _by(static, form="QOperator", per_channel=True, **S8),
    "dynamic": dynamic,
    "dynamic-u8": _by(dynamic, weight_type="QUInt8"),
    "dynamic-channel": _by(dynamic, per_channel=True, reduce_range=True),
    "int4": nbits,
    "int4-32": _by(nbits, block_size=32, is_symmetric=True),
    "int4-level4": _by(nbits, accuracy_level=4),
    "int4-qdq": _by(nbits, form="QDQ", is_symmetric=True),
    "int4-qdq-32": _by(nbits, form="QDQ", block_size=32),
    "int4-hqq": _by(nbits, algorithm="HQQ"),
    "int2": _by(nbits, bits=2),
    "int8-weights": _by(nbits, bits=8),
    "ort-fp16": _by(ort_fp16),
    "ort-fp16-io32": _by(ort_fp16, keep_io_types=True),
    "ort-fp16-kept": _by(ort_fp16, keep_io_types=True, op_block_list=["LayerNormalization", "Gemm", "Softmax"]),
    "suite-fp16": _by(suite, "fp16"),
    "suite-int8": _by(suite, "int8"),
    "suite-int8-entropy": _by(suite, "int8", calibration={"method": "entropy"}),
    "common-fp16": common_fp16,
    "common-fp16-io32": _by(common_fp16, keep_io_types=True),
    "nncf": nncf_int8,
    "nncf-transformer": _by(nncf_int8, model_type="TRANSFORMER"),
    "nncf-exact-bias": _by(nncf_int8, fast_bias_correction=False),
    "nncf-int8-weights": _by(nncf_weights, "INT8_ASYM"),
    "nncf-int4-weights": _by(nncf_weights, "INT4_SYM", group_size=16, all_layers=True),
    "nncf-int4-asym": _by(nncf_weights, "INT4_ASYM", group_size=16, all_layers=True),
    "nncf-int4-scales": _by(nncf_weights, "INT4_ASYM", seen=True, group_size=16, all_layers=True,
                            scale_estimation=True),
    "nncf-int4-awq": _by(nncf_weights, "INT4_SYM", seen=True, group_size=16, all_layers=True, awq=True),
    "autocast-fp16": _by(autocast, "fp16"),
    "autocast-bf16": _by(autocast, "bf16"),
    "modelopt-int8": _by(modelopt, "int8"),
    "modelopt-int8-entropy": _by(modelopt, "int8", "entropy"),
    "modelopt-int4": _by(modelopt, "int4"),
    "modelopt-awq": _by(modelopt, "int4", "awq_clip"),
    "modelopt-fp8": _by(modelopt, "fp8"),
    "olive-dynamic": _by(olive, "OnnxDynamicQuantization"),
    "olive-rtn": _by(olive, "OnnxBlockWiseRtnQuantization", block_size=16),
    "quark": _by(quark, "Int8Spec"),
    "quark-power-of-2": _by(quark, "XInt8Spec"),
    "torchao-pt2e": torchao,
    "torchao-weights": _by(torchao_weights, 8),
    "torchao-int4": _by(torchao_weights, 4),
}  # fmt: skip


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
