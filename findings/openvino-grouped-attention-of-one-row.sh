#!/bin/sh
# GroupQueryAttention, as files of language models for ONNX Runtime have it, is right in OpenVINO for a batch of one;
# of two it fails while it runs.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 openvino==2026.4.1 numpy==2.4.6 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import numpy as np
import onnx
import onnxruntime
import openvino
from onnx import TensorProto, helper

print(f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}, openvino {openvino.__version__}")


def floats(name, *shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


node = helper.make_node(
    "GroupQueryAttention", ["q", "k", "v", "past_k", "past_v", "length", "total"], ["y", "new_k", "new_v"],
    domain="com.microsoft", num_heads=4, kv_num_heads=2,
)
inputs = [
    floats("q", "b", 1, 64), floats("k", "b", 1, 32), floats("v", "b", 1, 32),
    floats("past_k", "b", 2, "p", 16), floats("past_v", "b", 2, "p", 16),
    helper.make_tensor_value_info("length", TensorProto.INT32, ["b"]),
    helper.make_tensor_value_info("total", TensorProto.INT32, []),
]
outputs = [floats("y", "b", 1, 64), floats("new_k", "b", 2, "t", 16), floats("new_v", "b", 2, "t", 16)]
imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
model = helper.make_model(helper.make_graph([node], "net", inputs, outputs), opset_imports=imports, ir_version=10)
onnx.checker.check_model(model)
onnx.save(model, "net.onnx")
rng = np.random.default_rng(0)
seen = {}
for batch in (1, 2):
    q, k, v = (rng.normal(size=(batch, 1, n)).astype(np.float32) for n in (64, 32, 32))
    past_k, past_v = (rng.normal(size=(batch, 2, 5, 16)).astype(np.float32) for _ in range(2))
    feed = {"q": q, "k": k, "v": v, "past_k": past_k, "past_v": past_v,
            "length": np.full(batch, 5, np.int32), "total": np.array(6, np.int32)}
    by_runtime = onnxruntime.InferenceSession("net.onnx").run(None, feed)[0]
    keys, values = (
        np.repeat(np.concatenate([past, new.reshape(batch, 1, 2, 16).transpose(0, 2, 1, 3)], 2), 2, 1)
        for past, new in ((past_k, k), (past_v, v))
    )
    weights = np.exp(q.reshape(batch, 1, 4, 16).transpose(0, 2, 1, 3) @ keys.swapaxes(2, 3) / 4)
    right = (weights / weights.sum(-1, keepdims=True) @ values).reshape(batch, 1, 64)
    print(f"batch {batch}: expected: {right.shape}, as of ONNX Runtime, {np.abs(by_runtime - right).max():.1g} off")
    try:
        got = openvino.Core().compile_model("net.onnx", "CPU")(feed)[0]
        same = got.shape == right.shape and np.allclose(got, right, atol=1e-5)
        seen[batch] = "the same" if same else f"shape {got.shape}, other values"
    except RuntimeError as error:
        seen[batch] = f"an error, {str(error).strip().splitlines()[-2]}"
    print(f"batch {batch}: seen: {seen[batch]}")
if seen[1] != "the same" or seen[2] == "the same":
    raise SystemExit("this has changed")
PYTHON
