#!/bin/sh
# FusedGemm of com.microsoft, which ONNX Runtime's optimizer writes for a Gemm and what follows it: OpenVINO computes
# Relu for each activation but LeakyRelu, without a word.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 openvino==2026.4.1 numpy==2.4.6 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import openvino

model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 17]>
net (float[1, 2] x) => (float[1, 2] y)
<float[2, 2] w = {1, 0, 0, 1}, float[2] c = {0, 0}>
{ t = Gemm(x, w, c) y = Tanh(t) }
""")
onnx.checker.check_model(model, full_check=True)
options = onnxruntime.SessionOptions()
options.optimized_model_filepath = "optimized.onnx"
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
x = np.array([[-1, 2]], np.float32)
(wanted,) = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, {"x": x})
nodes = [f"{node.op_type} of {node.domain or 'ai.onnx'}" for node in onnx.load("optimized.onnx").graph.node]
core = openvino.Core()
found = {}
for name, data in (("as it was", model.SerializeToString()), ("optimized", Path("optimized.onnx").read_bytes())):
    compiled = core.compile_model(core.read_model(data, b""), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    found[name] = compiled([x])[0].copy()
print(f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}, openvino {openvino.__version__}")
print(f"expected: {wanted.ravel()} of both files, or a refusal of the optimized one ({', '.join(nodes)})")
print(f"seen: openvino {found['as it was'].ravel()} of the file, {found['optimized'].ravel()} of the optimized one")
if not np.allclose(found["as it was"], wanted, atol=1e-4) or not np.array_equal(found["optimized"], [[0, 2]]):
    raise SystemExit("this has changed")
PYTHON
