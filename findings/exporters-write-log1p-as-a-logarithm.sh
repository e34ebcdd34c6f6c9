#!/bin/sh
# log1p, expm1 and logaddexp are there for values at which log(1 + x), exp(x) - 1 and log(exp(x) + exp(y)) have no
# right digit or overflow. The exporters of torch write just these.
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


class Call(torch.nn.Module):
    """Call a function of torch."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def exported(function, *inputs, dynamo):
    if dynamo:
        model = torch.onnx.export(Call(function), inputs, dynamo=True, verbose=False).model_proto.SerializeToString()
    else:
        torch.onnx.export(Call(function), inputs, file := io.BytesIO(), dynamo=False, opset_version=18)
        model = file.getvalue()
    session = onnxruntime.InferenceSession(model)
    names = [value.name for value in session.get_inputs()]
    return session.run(None, dict(zip(names, (value.numpy() for value in inputs), strict=True)))[0].item()


small, large = torch.tensor([1e-7]), torch.tensor([300.0])
found = {
    "log1p by TorchScript": (exported(torch.log1p, small, dynamo=False), 1e-7),
    "log1p by dynamo": (exported(torch.log1p, small, dynamo=True), 1e-7),
    "expm1 by dynamo": (exported(torch.expm1, small, dynamo=True), 1e-7),
    "logaddexp by dynamo": (exported(torch.logaddexp, large, large, dynamo=True), 300.693),
}
print(f"torch {torch.__version__}, onnxruntime {onnxruntime.__version__}")
for name, (seen, wanted) in found.items():
    print(f"{name}: expected: {wanted:.4g} as torch gives; seen: {seen:.4g}")
raise SystemExit("this has changed" if any(np.isclose(*pair, rtol=1e-3, atol=0) for pair in found.values()) else None)
PYTHON
