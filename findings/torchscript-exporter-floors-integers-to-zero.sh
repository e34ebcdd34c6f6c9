#!/bin/sh
# Whole numbers divided by // round down in PyTorch; the TorchScript exporter writes a Div, which rounds to zero in
# ONNX, so that -7 // 2 is -3.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet \
    torch==2.15.0 onnx==1.23.2 onnxscript==0.7.2 onnxruntime==1.32.0 numpy==2.4.6 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import io
import warnings

import numpy as np
import onnxruntime
import torch

warnings.filterwarnings("ignore")


class Halve(torch.nn.Module):
    """Divide whole numbers by two."""

    def forward(self, x):
        return x // 2


x, file = torch.tensor([-7, -1, 7]), io.BytesIO()
torch.onnx.export(Halve(), (x,), file, dynamo=False, opset_version=18, input_names=["x"])
(old,) = onnxruntime.InferenceSession(file.getvalue()).run(None, {"x": x.numpy()})
program = torch.onnx.export(Halve(), (x,), dynamo=True, verbose=False)
session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
(new,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
print(f"torch {torch.__version__}, onnxruntime {onnxruntime.__version__}")
print(f"expected: {(x // 2).tolist()}")
print(f"seen: TorchScript {old.tolist()}, dynamo {new.tolist()}")
if np.array_equal(old, x // 2):
    raise SystemExit("this has changed")
PYTHON
