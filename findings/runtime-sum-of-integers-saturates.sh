#!/bin/sh
# ReduceSum of int32 in ONNX Runtime stays at the largest int32 where Add wraps: the same four numbers, added up by
# two operators, give two results.
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

model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 18]>
net (int32[1, 3] x) => (int32[1] s, int32[1] a)
<int64[1] last = {1}>
{ s = ReduceSum <keepdims = 0> (x, last) p, q, r = Split <axis = 1, num_outputs = 3> (x)
  t = Add(p, q) u = Add(t, r) a = Squeeze(u, last) }
""")
onnx.checker.check_model(model, full_check=True)
x = np.full((1, 3), 2**30, np.int32)
summed, added = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
print(f"onnxruntime {onnxruntime.__version__}")
print("expected: 3 * 2**30 in 32 bits wraps to -1073741824, by ReduceSum as by Add")
print(f"seen: ReduceSum {summed[0]}, Add {added[0]}")
if summed[0] != 2**31 - 1 or added[0] != -(2**30):
    raise SystemExit("this has changed")
PYTHON
