#!/bin/sh
# Relu after Clip to negative values gives 0; the optimizer that torch.onnx.export applies joins both to a Clip whose
# lower bound is above its upper bound, which gives the upper bound.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnx==1.23.2 onnxscript==0.7.2 onnxruntime==1.32.0 numpy==2.4.6 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import numpy as np
import onnx
import onnx.parser
import onnxruntime
import onnxscript
import onnxscript.optimizer

model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 18]>
net (float[3] x) => (float[3] y)
<float low = {-5}, float high = {-1}>
{ c = Clip(x, low, high) y = Relu(c) }
""")
onnx.checker.check_model(model, full_check=True)
x = np.array([-3, 0, 2], np.float32)
joined = onnxscript.optimizer.optimize(onnx.load_from_string(model.SerializeToString()))


def run(net):
    return onnxruntime.InferenceSession(net.SerializeToString()).run(None, {"x": x})[0]


print(f"onnxscript {onnxscript.__version__}, onnxruntime {onnxruntime.__version__}")
print(f"expected: Clip to [-5, -1] and then Relu: {run(model)} before and after")
print(f"seen: after the optimizer {run(joined)}, nodes {[node.op_type for node in joined.graph.node]}")
if np.array_equal(run(model), run(joined)):
    raise SystemExit("this has changed")
PYTHON
