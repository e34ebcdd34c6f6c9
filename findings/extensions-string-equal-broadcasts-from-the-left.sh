#!/bin/sh
# StringEqual of onnxruntime-extensions takes a table and a row of strings, and compares them from the first dimension
# on, where ONNX's Equal and NumPy begin at the last; nothing is said.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet \
    onnx==1.23.2 onnxruntime==1.32.0 onnxruntime-extensions==0.15.2 numpy==2.4.6 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
from importlib.metadata import version

import numpy as np
import onnx
import onnx.parser
import onnxruntime
from onnxruntime_extensions import get_library_path

table, row, found = np.array([["a", "b"], ["b", "a"]], object), np.array(["a", "b"], object), {}
options = onnxruntime.SessionOptions()
options.register_custom_ops_library(get_library_path())
for name, call in (("Equal", "Equal(x, y)"), ("StringEqual", "ai.onnx.contrib.StringEqual(x, y)")):
    model = onnx.parser.parse_model(f"""
    <ir_version: 9, opset_import: ["" : 19, "ai.onnx.contrib" : 1]>
    net (string[2, 2] x, string[2] y) => (bool[2, 2] z) {{ z = {call} }}
    """)
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    (found[name],) = session.run(None, {"x": table, "y": row})
print(f"onnxruntime {onnxruntime.__version__}, onnxruntime-extensions {version('onnxruntime-extensions')}")
print(f"expected: {(table == row).tolist()}, as of NumPy, or a refusal")
print("seen: " + ", ".join(f"{name} {value.tolist()}" for name, value in found.items()))
if not np.array_equal(found["Equal"], table == row) or np.array_equal(found["StringEqual"], table == row):
    raise SystemExit("this has changed")
PYTHON
