"""``python bare_module.py CLASS EXPORTER FILE SHAPE JSON``: a module of ``networks`` exported into a file, opened in
ONNX Runtime, run on five examples and compared with PyTorch. It is what somebody writes who has no harness.

A command behind these is run on the file in place of all that follows the export.
"""

from __future__ import annotations

import json
import os
import sys

import networks  # type: ignore[import-not-found]  # the copy beside the case
import numpy as np
import onnxruntime
import torch


def export(module: torch.nn.Module, example: torch.Tensor, exporter: str, file: str) -> None:
    inputs, outputs = ["x"], ["y"]
    if exporter == "dynamo":
        torch.onnx.export(
            module, (example,), file, dynamo=True, opset_version=20, input_names=inputs, output_names=outputs,
            dynamic_shapes=({0: torch.export.Dim.DYNAMIC},),
        )  # fmt: skip
    else:
        torch.onnx.export(
            module, (example,), file, dynamo=False, opset_version=17, input_names=inputs, output_names=outputs,
            dynamic_axes={"x": {0: "batch"}},
        )  # fmt: skip


def main(name: str, exporter: str, file: str, shape: str, settings: str, *command: str) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.backends.mha.set_fastpath_enabled(False)  # which TorchScript's exporter has no symbolic for
    module = getattr(networks, name)(**json.loads(settings)).eval()
    size = json.loads(shape)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    with torch.no_grad():
        export(module, torch.randn(2, *size), exporter, file)
        if command:
            os.execv(command[0], command)
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        for batch in (1, 2, 3, 4, 1):
            x = torch.randn(batch, *size)
            wanted = module(x).numpy()
            (got,) = session.run(None, {"x": x.numpy()})
            np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4 * np.abs(wanted).max())


if __name__ == "__main__":
    main(*sys.argv[1:])
