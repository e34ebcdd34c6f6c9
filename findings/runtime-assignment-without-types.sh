#!/bin/sh
# ONNX Runtime tells which execution provider took which node, and not in which type the node runs there.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import onnxruntime
from onnx import TensorProto, helper

nodes = [helper.make_node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16), helper.make_node("Sqrt", ["h"], ["y"], "root")]
graph = helper.make_graph(
    nodes, "half", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT16, [4])],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
options = onnxruntime.SessionOptions()
options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
told = [node for part in session.get_provider_graph_assignment_info() for node in part.get_nodes()]
known = sorted({name for node in told for name in dir(node) if not name.startswith("_")})
print(f"onnxruntime {onnxruntime.__version__}")
print("expected: for each node its provider and the types of its kernel, since a float16 model may run in float32")
print(f"seen: {[node.op_type for node in told]}, of each: {', '.join(known)}")
if any("type" in name and name != "op_type" for name in known) or "Sqrt" not in {node.op_type for node in told}:
    raise SystemExit("this has changed")
PYTHON
