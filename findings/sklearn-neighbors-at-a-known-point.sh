#!/bin/sh
# KNeighborsRegressor with weights by distance returns the stored value at a stored point; what skl2onnx makes of it
# returns a mean of that value and its neighbour's.
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
from sklearn.neighbors import KNeighborsRegressor

x = np.arange(12, dtype=np.float32).reshape(6, 2)
model = KNeighborsRegressor(2, weights="distance").fit(x, np.arange(10, 70, 10))
net = to_onnx(model, x[:1])
(runtime,) = onnxruntime.InferenceSession(net.SerializeToString()).run(None, {net.graph.input[0].name: x})[:1]
print(f"skl2onnx {version('skl2onnx')}, scikit-learn {version('scikit-learn')}")
print(f"expected: {model.predict(x).tolist()}")
print(f"seen: {runtime.ravel().tolist()}")
if np.allclose(runtime.ravel(), model.predict(x), rtol=1e-3):
    raise SystemExit("this has changed")
PYTHON
