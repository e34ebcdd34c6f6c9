#!/bin/sh
# A row of Attention whose mask hides everything is 0 in ONNX's evaluator; OpenVINO gives 0 in float32 and float16, and
# in bfloat16 the mean of the values.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnx==1.23.2 openvino==2026.4.1 numpy==2.4.6 ml_dtypes==0.5.4 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import openvino
from onnx.reference import ReferenceEvaluator

print(f"onnx {onnx.__version__}, openvino {openvino.__version__}")
rng = np.random.default_rng(0)
mask = np.array([[True, True, False], [False, False, False]])
seen = {}
for name, dtype in (("float", np.float32), ("float16", np.float16), ("bfloat16", ml_dtypes.bfloat16)):
    inputs = f"{name}[1, 1, 2, 8] q, {name}[1, 1, 3, 8] k, {name}[1, 1, 3, 8] v, bool[2, 3] mask"
    model = onnx.parser.parse_model(
        f'<ir_version: 11, opset_import: ["" : 23]> net ({inputs}) => ({name}[1, 1, 2, 8] y) '
        "{ y = Attention(q, k, v, mask) }"
    )
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, "net.onnx")
    values = {x: rng.normal(size=(1, 1, n, 8)).astype(dtype) for x, n in (("q", 2), ("k", 3), ("v", 3))}
    right = ReferenceEvaluator(model).run(None, {**values, "mask": mask})[0].astype(np.float32)
    request = openvino.Core().compile_model("net.onnx", "CPU").create_infer_request()
    for x, array in values.items():
        few = dtype is ml_dtypes.bfloat16
        tensor = openvino.Tensor(array.view(np.uint16), array.shape, openvino.Type.bf16) if few else openvino.Tensor(array)
        request.set_tensor(x, tensor)
    request.set_tensor("mask", openvino.Tensor(mask))
    request.infer()
    got = request.get_output_tensor(0).data
    if dtype is ml_dtypes.bfloat16:
        got = got.view(ml_dtypes.bfloat16)
    got = got.astype(np.float32)
    seen[name] = np.abs(got - right)[0, 0].max(axis=-1).tolist()
    mean = values["v"].astype(np.float32).mean(axis=2)[0, 0]
    print(f"{name}: expected: {right[0, 0, 1, :3]}; seen: {got[0, 0, 1, :3]}, where the mean is {mean[:3]}")
if seen["bfloat16"][1] < 0.1 or seen["bfloat16"][0] > 0.05 or max(*seen["float"], *seen["float16"]) > 0.01:
    raise SystemExit("this has changed")
PYTHON
