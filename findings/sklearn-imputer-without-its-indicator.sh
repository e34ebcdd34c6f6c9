#!/bin/sh
# SimpleImputer with add_indicator gives one column more for each feature that had missing values; skl2onnx converts
# it without them and without a word, so that the output is narrower.
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
from sklearn.impute import SimpleImputer

x = np.array([[1, np.nan], [2, 3], [np.nan, 5]], np.float32)
model = SimpleImputer(add_indicator=True).fit(x)
net = to_onnx(model, x[:1])
(runtime,) = onnxruntime.InferenceSession(net.SerializeToString()).run(None, {net.graph.input[0].name: x})[:1]
print(f"skl2onnx {version('skl2onnx')}, scikit-learn {version('scikit-learn')}")
print(f"expected: shape {model.transform(x).shape}, two features and two indicators")
print(f"seen: shape {runtime.shape}")
if runtime.shape == model.transform(x).shape:
    raise SystemExit("this has changed")
PYTHON
