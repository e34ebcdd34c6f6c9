#!/bin/sh
# qonnx-cleanup gives all tensors new names. A node that reads one tensor twice, as the square Mul(a, a), has its first
# input renamed and its second one not, so that the model that it writes does not load.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 qonnx==1.0.0 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
from importlib.metadata import version

import numpy as np
import onnx
import onnx.parser
import onnxruntime
from qonnx.core.modelwrapper import ModelWrapper
from qonnx.util.cleanup import cleanup_model

model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 18]>
net (float[3] x) => (float[3] y)
{ a = Relu(x) b = Mul(a, a) y = Exp(b) }
""")
onnx.checker.check_model(model, full_check=True)
x = np.array([0, 1, 2], np.float32)
(right,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
cleaned = cleanup_model(ModelWrapper(model)).model
(square,) = (node for node in cleaned.graph.node if node.op_type == "Mul")
print(f"onnxruntime {onnxruntime.__version__}, qonnx {version('qonnx')}")
print(f"expected: the square reads one tensor twice, and the model gives {right.tolist()}")
print(f"seen: the square reads {list(square.input)}")
try:
    onnx.checker.check_model(cleaned)
except onnx.checker.ValidationError as error:
    print(str(error).strip().splitlines()[0])
else:
    raise SystemExit("this has changed")
PYTHON
