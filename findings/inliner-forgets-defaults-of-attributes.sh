#!/bin/sh
# A function with a default for an attribute, called without it: onnx's inliner leaves the attribute out, so that the
# operator in the function takes its own default. The model before and after is valid, and runs.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import numpy as np
import onnx
import onnx.inliner
import onnx.parser
import onnxruntime

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 18, "own" : 1]>
net (float[2] x) => (float[2] y, float[2] z) { y = own.Leaky(x) z = own.Leaky <slope = 0.25> (x) }
<domain: "own", opset_import: ["" : 18]>
Leaky <slope: float = 0.5> (p) => (q) { q = LeakyRelu <alpha: float = @slope> (p) }
""")
inlined = onnx.inliner.inline_local_functions(model)
x, found = np.array([-1, 1], np.float32), {}
for name, one in (("with the function", model), ("inlined", inlined)):
    onnx.checker.check_model(one, full_check=True)
    found[name] = onnxruntime.InferenceSession(one.SerializeToString()).run(None, {"x": x})
print(f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}")
print("expected: slopes of 0.5 (the default) and 0.25 (given), before and after")
for name, (y, z) in found.items():
    print(f"seen: {name}: slopes of {-y[0]:g} and {-z[0]:g}")
if found["with the function"][0][0] != -0.5 or found["inlined"][0][0] == -0.5:
    raise SystemExit("this has changed")
PYTHON
