"""``python programs.py PROGRAM FILE`` runs one program on a file, or an exporter on a module of as many nodes as the
file's name says, and prints what that took as JSON: CPU ``seconds`` of all its threads, without imports, and the
``bytes`` by which the memory of this process grew at most. Nothing of this package is imported here, as some programs
are in an environment of their own."""

from __future__ import annotations

import importlib
import json
import re
import resource
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

Program = Callable[[str, str], object]
"""It takes a file, and where to write another."""
PROGRAMS: dict[str, tuple[str, Program]] = {}
"""By name, with the module that is imported before the clock starts."""


def program(name: str, module: str) -> Callable[[Program], Program]:
    """Note a program by the name that a page gives it."""

    def note(function: Program) -> Program:
        PROGRAMS[name] = module, function
        return function

    return note


@program("onnx.checker, full", "onnx")
def check(file: str, _: str) -> object:
    import onnx

    return onnx.checker.check_model(file, full_check=True)


@program("onnx.shape_inference", "onnx")
def infer(file: str, other: str) -> object:
    import onnx

    return onnx.shape_inference.infer_shapes_path(file, other)


@program("onnx.version_converter to 21", "onnx.version_converter")
def upgrade(file: str, _: str) -> object:
    import onnx

    return onnx.version_converter.convert_version(onnx.load(file), 21)


@program("ONNX Runtime opens it", "onnxruntime")
def optimized(file: str, _: str) -> object:
    return _session(file, "ORT_ENABLE_ALL")


@program("ONNX Runtime opens it, not optimized", "onnxruntime")
def unoptimized(file: str, _: str) -> object:
    return _session(file, "ORT_DISABLE_ALL")


def _session(file: str, level: str) -> object:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])


@program("ONNX Runtime's dynamic quantizer", "onnxruntime.quantization")
def quantize_dynamic(file: str, other: str) -> object:
    from onnxruntime import quantization

    return quantization.quantize_dynamic(file, other)


@program("ONNX Runtime's static quantizer, one sample", "onnxruntime.quantization")
def quantize_static(file: str, other: str) -> object:
    import numpy as np
    import onnxruntime
    from onnxruntime import quantization

    class Once(quantization.CalibrationDataReader):  # type: ignore[misc]
        """One sample of ones."""

        def __init__(self) -> None:
            (given,) = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"]).get_inputs()
            shape = [size if isinstance(size, int) else 1 for size in given.shape]
            self._left: Iterator[dict[str, Any]] = iter([{given.name: np.ones(shape, np.float32)}])

        def get_next(self) -> dict[str, Any] | None:
            return next(self._left, None)

    return quantization.quantize_static(file, other, Once())


@program("ONNX Runtime's float16 converter", "onnxruntime.transformers.float16")
def float16(file: str, _: str) -> object:
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    return convert_float_to_float16(onnx.load(file))


@program("onnxconverter-common's float16 converter", "onnxconverter_common.float16")
def float16_common(file: str, _: str) -> object:
    import onnx
    from onnxconverter_common.float16 import convert_float_to_float16  # type: ignore[import-not-found]

    return convert_float_to_float16(onnx.load(file))


@program("onnxsim", "onnxsim")
def onnxsim(file: str, _: str) -> object:
    import onnx
    import onnxsim as simplifier

    return simplifier.simplify(onnx.load(file))


@program("onnxslim", "onnxslim")
def onnxslim(file: str, _: str) -> object:
    import onnxslim as simplifier  # type: ignore[import-not-found]

    return simplifier.slim(file)


@program("torch.onnx.export, TorchScript", "torch.onnx")
def torchscript(file: str, other: str) -> object:
    import torch

    module, x = blocks(file)
    return torch.onnx.export(module, (x,), other, dynamo=False, opset_version=17)


@program("torch.onnx.export, dynamo", "torch.onnx")
def dynamo(file: str, _: str) -> object:
    import torch

    module, x = blocks(file)
    return torch.onnx.export(module, (x,), dynamo=True, opset_version=18, verbose=False)


def blocks(file: str) -> Any:
    """Return a module of residual blocks, which are five ONNX nodes each, and an input."""
    import torch

    count = int(re.findall(r"\d+", file)[-1]) // 5

    class Blocks(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(count))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = x + 0.1 * torch.tanh(layer(x))
            return x

    return Blocks().eval(), torch.randn(4, 16)


def main(name: str, file: str) -> None:
    module, run = PROGRAMS[name]
    importlib.import_module(module)
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    run(file, f"{file}.other")
    seconds = time.process_time() - start
    print(json.dumps({"seconds": seconds, "bytes": 1024 * (_most() - before)}))


def _most() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main(*sys.argv[1:])
