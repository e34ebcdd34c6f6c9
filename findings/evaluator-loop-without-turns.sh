#!/bin/sh
# A Loop with 0 turns and an output that is stacked of its turns gives a tensor without rows; onnx's evaluator raises
# an error.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import numpy as np
import onnx
import onnx.parser
import onnxruntime
from onnx.reference import ReferenceEvaluator

model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 18]>
net (int64 turns, float[3] x) => (float[3] last, float[t, 3] all)
<bool true = {1}>
{
  last, all = Loop (turns, true, x) <body = turn (int64 i, bool go, float[3] a) => (bool on, float[3] b, float[3] c)
    { on = Identity(go) b = Add(a, a) c = Neg(b) }>
}
""")
onnx.checker.check_model(model, full_check=True)
feeds = {"turns": np.array(0), "x": np.ones(3, np.float32)}
last, stacked = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
print(f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}")
print("expected: the value that went in, and a stack of shape (0, 3), in both")
try:
    ReferenceEvaluator(model).run(None, feeds)
except Exception as error:
    print(f"seen: onnxruntime {last} and shape {stacked.shape}; onnx's evaluator {type(error).__name__}: {error}")
else:
    raise SystemExit("this has changed")
PYTHON
