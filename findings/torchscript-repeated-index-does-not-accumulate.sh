#!/bin/sh
# index_put with accumulate=True adds up what goes to one place. The TorchScript exporter of torch writes a ScatterND
# without a reduction at opset 17, though ScatterND can add from opset 16 on: of values for one place the last one stays.
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


class Histogram(torch.nn.Module):
    """Add weights up by bin."""

    def forward(self, weights, bins):
        return torch.zeros(3).index_put((bins,), weights, accumulate=True)


weights, bins = torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0, 0, 2])
data = io.BytesIO()
torch.onnx.export(Histogram(), (weights, bins), data, opset_version=17, dynamo=False)
session = onnxruntime.InferenceSession(data.getvalue())
names = [value.name for value in session.get_inputs()]
seen = session.run(None, dict(zip(names, (weights.numpy(), bins.numpy()), strict=True)))[0].tolist()
print(f"torch {torch.__version__}, onnxruntime {onnxruntime.__version__}")
print(f"expected: {Histogram()(weights, bins).tolist()} of weights [1, 2, 4] in bins [0, 0, 2]; seen: {seen}")
raise SystemExit(None if seen == [2.0, 0.0, 4.0] else "this has changed")
PYTHON
