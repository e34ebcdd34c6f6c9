#!/bin/sh
# Split in two parts of a dimension whose size is known at run time alone: with 5 values OpenVINO fails at run time,
# while the same Split of a fixed dimension of 5 is computed.
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

x, core, said = np.arange(5, dtype=np.float32), openvino.Core(), {}
for size in ("5", "n"):
    model = onnx.parser.parse_model(f"""
    <ir_version: 9, opset_import: ["" : 18]>
    net (float[{size}] x) => (float[p] a, float[q] b) {{ a, b = Split <axis = 0, num_outputs = 2> (x) }}
    """)
    onnx.checker.check_model(model, full_check=True)
    runtime = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    compiled = core.compile_model(core.read_model(model.SerializeToString(), b""), "CPU")
    try:
        found = compiled([x])
        said[size] = [found[output].tolist() for output in compiled.outputs]
    except RuntimeError as error:
        said[size] = str(error).strip().splitlines()[-1][:110]
print(f"onnxruntime {onnxruntime.__version__}, openvino {openvino.__version__}")
print(f"expected: {[value.tolist() for value in runtime]}, with either shape")
print(f"seen: openvino, shape [5]: {said['5']}; shape [n]: {said['n']}")
if isinstance(said["5"], str) or not isinstance(said["n"], str):
    raise SystemExit("this has changed")
PYTHON
