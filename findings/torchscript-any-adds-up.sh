#!/bin/sh
# torch.any of numbers: the TorchScript exporter of torch adds them up as whole numbers and asks whether the sum is above
# zero, so that a half counts as nothing, and -1 takes 1 away. (The dynamo exporter is right.)
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

import onnxruntime
import torch

warnings.filterwarnings("ignore")


class AnyOf(torch.nn.Module):
    """True where one of the values is not zero."""

    def forward(self, x):
        return torch.any(x)


def exported(example):
    data = io.BytesIO()
    torch.onnx.export(AnyOf(), (example,), data, opset_version=17, dynamo=False)
    session = onnxruntime.InferenceSession(data.getvalue())
    return session.run(None, {session.get_inputs()[0].name: example.numpy()})[0].item()


halves, opposites = torch.tensor([0.0, 0.5, 0.0]), torch.tensor([0, -1, 1])
seen = [exported(halves), exported(opposites)]
print(f"torch {torch.__version__}, onnxruntime {onnxruntime.__version__}")
print(f"expected: {[torch.any(halves).item(), torch.any(opposites).item()]} of [0, 0.5, 0] and [0, -1, 1]; seen: {seen}")
raise SystemExit(None if seen == [False, False] else "this has changed")
PYTHON
