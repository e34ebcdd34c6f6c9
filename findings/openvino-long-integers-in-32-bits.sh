#!/bin/sh
# int64 is computed in 32 bits by OpenVINO on a CPU, without a word: 2**32 equals 0, the larger of 2**40 and 1 is 1,
# 2**53 + 1 is 1.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 openvino==2026.4.1 numpy==2.4.6 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import numpy as np
import onnx
import onnx.parser
import onnxruntime
import openvino

model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 18]>
net (int64[2] a, int64[2] b) => (int64[2] s, int64[2] m, bool[2] e)
{ s = Add(a, b) m = Max(a, b) e = Equal(a, b) }
""")
onnx.checker.check_model(model, full_check=True)
core = openvino.Core()
network = core.read_model(model.SerializeToString(), b"")
compiled = core.compile_model(network, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
a, b = np.array([2**40, 2**32]), np.array([1, 0])
runtime = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"a": a, "b": b})
found = compiled([a, b])
vino = [found[output] for output in compiled.outputs]
print(f"onnxruntime {onnxruntime.__version__}, openvino {openvino.__version__}")
print(f"expected: sum, larger, equal of (2**40, 1) and (2**32, 0): {[value.tolist() for value in runtime]}")
print(f"seen: openvino {[value.tolist() for value in vino]} as {vino[0].dtype}")
if all(np.array_equal(one, two) for one, two in zip(runtime, vino)):
    raise SystemExit("this has changed")
PYTHON
