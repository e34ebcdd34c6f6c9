#!/bin/sh
# Normalizer with the largest value as its norm takes absolute values in scikit-learn; what skl2onnx makes of it
# divides by the largest signed value, so that a row of negative numbers changes its sign.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet \
    skl2onnx==1.20.0 scikit-learn==1.9.1 onnxruntime==1.32.0 numpy==2.4.6 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
from importlib.metadata import version

import numpy as np
import onnxruntime
from skl2onnx import to_onnx
from sklearn.preprocessing import Normalizer

x = np.array([[-1, -2, -4], [1, 2, -4]], np.float32)
model = Normalizer("max").fit(x)
net = to_onnx(model, x[:1])
(runtime,) = onnxruntime.InferenceSession(net.SerializeToString()).run(None, {net.graph.input[0].name: x})[:1]
print(f"skl2onnx {version('skl2onnx')}, scikit-learn {version('scikit-learn')}")
print(f"expected: {model.transform(x).tolist()}")
print(f"seen: {runtime.tolist()}")
if np.allclose(runtime, model.transform(x)):
    raise SystemExit("this has changed")
PYTHON
