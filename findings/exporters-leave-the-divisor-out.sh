#!/bin/sh
# avg_pool2d with divisor_override = 2 divides each window's sum by 2; both exporters of torch write an AveragePool
# over the whole window, without a warning.
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


class Pool(torch.nn.Module):
    """Add up windows of three times three and halve the sums."""

    def forward(self, x):
        return torch.nn.functional.avg_pool2d(x, 3, divisor_override=2)


x, file = torch.ones(1, 1, 3, 3), io.BytesIO()
torch.onnx.export(Pool(), (x,), file, dynamo=False, opset_version=18, input_names=["x"])
(old,) = onnxruntime.InferenceSession(file.getvalue()).run(None, {"x": x.numpy()})
program = torch.onnx.export(Pool(), (x,), dynamo=True, verbose=False)
session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
(new,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
print(f"torch {torch.__version__}, onnxruntime {onnxruntime.__version__}")
print("expected: nine ones divided by two, 4.5, or a refusal")
print(f"seen: TorchScript {old.item():.6f}, dynamo {new.item():.6f}")
if np.isclose(old.item(), 4.5) or np.isclose(new.item(), 4.5):
    raise SystemExit("this has changed")
PYTHON
