#!/bin/sh
# torch.cross without dim takes the first dimension of size 3. The dynamo exporter of torch takes the last one, without a
# warning, where two dimensions have three values. (The TorchScript exporter is right.)
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

warnings.filterwarnings("ignore")


class Cross(torch.nn.Module):
    """The cross products of three pairs of vectors, which stand in columns."""

    def forward(self, left, right):
        return torch.cross(left, right)


left, right = torch.arange(9.0).reshape(3, 3), torch.tensor([[0.0, 1, 0], [0, 0, 1], [1, 0, 0]])
program = torch.onnx.export(Cross(), (left, right), dynamo=True, verbose=False)
session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
names = [value.name for value in session.get_inputs()]
(seen,) = session.run(None, dict(zip(names, (left.numpy(), right.numpy()), strict=True)))
wanted, other = torch.cross(left, right).numpy(), torch.linalg.cross(left, right, dim=1).numpy()
print(f"torch {torch.__version__}, onnxruntime {onnxruntime.__version__}")
print(f"expected: {wanted[0].tolist()} in the first row as torch gives; seen: {seen[0].tolist()}, as with dim=1")
raise SystemExit(None if np.array_equal(seen, other) and not np.array_equal(seen, wanted) else "this has changed")
PYTHON
