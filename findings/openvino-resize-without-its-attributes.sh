#!/bin/sh
# Resize with antialias, exclude_outside or keep_aspect_ratio_policy: OpenVINO loads each and computes as if the
# attribute were not there, down to the shape of the output.
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

WITH = {
    "antialias": ('mode = "linear", antialias = 1', "int64[4] s = {1, 1, 4, 5}"),
    "exclude_outside": ('mode = "cubic", exclude_outside = 1', "int64[4] s = {1, 1, 4, 5}"),
    "keep_aspect_ratio_policy": (
        'mode = "linear", axes = [2, 3], keep_aspect_ratio_policy = "not_larger"', "int64[2] s = {4, 4}"
    ),
}
core, x = openvino.Core(), np.random.default_rng(0).standard_normal((1, 1, 8, 12)).astype(np.float32)


def run(attributes, sizes):
    """The outputs of ONNX Runtime and of OpenVINO."""
    model = onnx.parser.parse_model(f"""
    <ir_version: 9, opset_import: ["" : 19]>
    net (float[1, 1, 8, 12] x) => (float[1, 1, h, w] y) <{sizes}> {{ y = Resize <{attributes}> (x, , , s) }}
    """)
    onnx.checker.check_model(model, full_check=True)
    network = core.read_model(model.SerializeToString(), b"")
    compiled = core.compile_model(network, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0], compiled([x])[0].copy()


print(f"onnxruntime {onnxruntime.__version__}, openvino {openvino.__version__}")
print("expected: each attribute changes the output, or is refused")
for name, (attributes, sizes) in WITH.items():
    plain = attributes.rsplit(", ", 1)[0]
    (runtime, vino), (_, without) = run(attributes, sizes), run(plain, sizes)
    print(f"seen: {name}: onnxruntime {runtime.shape[2:]} {runtime.flat[0]:.4f}, openvino", end=" ")
    print(f"{vino.shape[2:]} {vino.flat[0]:.4f}, openvino without it {without.shape[2:]} {without.flat[0]:.4f}")
    if not np.array_equal(vino, without) or (runtime.shape == vino.shape and np.allclose(runtime, vino, atol=1e-3)):
        raise SystemExit("this has changed")
PYTHON
