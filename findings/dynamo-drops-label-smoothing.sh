#!/bin/sh
# cross_entropy with label_smoothing: the dynamo exporter of torch writes a SoftmaxCrossEntropyLoss, which knows no
# smoothing, without a warning. (The TorchScript exporter refuses it.)
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet \
    torch==2.15.0 onnx==1.23.2 onnxscript==0.7.2 onnxruntime==1.32.0 numpy==2.4.6 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import warnings

import numpy as np
import onnxruntime
import torch
from torch.nn.functional import cross_entropy

warnings.filterwarnings("ignore")


class Loss(torch.nn.Module):
    """Compare scores with classes of which each is sure by 90 % alone."""

    def forward(self, scores, classes):
        return cross_entropy(scores, classes, label_smoothing=0.1)


scores, classes = torch.tensor([[2.0, 0.0, -1.0], [0.5, 1.5, 0.0]]), torch.tensor([0, 2])
program = torch.onnx.export(Loss(), (scores, classes), dynamo=True, verbose=False)
session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
names = [value.name for value in session.get_inputs()]
(seen,) = session.run(None, dict(zip(names, (scores.numpy(), classes.numpy()), strict=True)))
wanted, without = Loss()(scores, classes).item(), cross_entropy(scores, classes).item()
print(f"torch {torch.__version__}, onnxruntime {onnxruntime.__version__}")
print(f"expected: {wanted:.5f} as torch gives, or a refusal; seen: {seen:.5f}, and {without:.5f} without smoothing")
raise SystemExit(None if np.isclose(seen, without) and not np.isclose(seen, wanted) else "this has changed")
PYTHON
