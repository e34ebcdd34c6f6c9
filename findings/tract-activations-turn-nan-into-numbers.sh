#!/bin/sh
# NaN shows that something went wrong before, and every activation of ONNX hands it on. tract's Relu, Sigmoid, Tanh,
# HardSigmoid and Celu make an ordinary number of it, so that nothing behind them shows the mistake any more.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 tract==0.23.9 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
from importlib.metadata import version

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import tract

x, seen, expected = np.array([np.nan], np.float32), {}, {}
for operator in ("Relu", "Sigmoid", "Tanh", "HardSigmoid", "Celu"):
    text = f'<ir_version: 9, opset_import: ["" : 18]> net (float[1] x) => (float[1] y) {{ y = {operator} (x) }}'
    model = onnx.parser.parse_model(text)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, "model.onnx")
    net = tract.onnx().load("model.onnx")
    net.set_input_fact(0, "1,f32")
    (small,) = net.into_model().into_runnable().run([x])
    seen[operator] = float(small.to_numpy()[0])
    (runtime,) = onnxruntime.InferenceSession("model.onnx").run(None, {"x": x})
    expected[operator] = float(runtime[0])
print(f"onnxruntime {onnxruntime.__version__}, tract {version('tract')}")
print(f"expected: {expected} (ONNX Runtime)")
print(f"seen: {seen}")
if np.isnan([*seen.values()]).any() or not np.isnan([*expected.values()]).all():
    raise SystemExit("this has changed")
PYTHON
