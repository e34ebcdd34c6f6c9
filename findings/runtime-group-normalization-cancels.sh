#!/bin/sh
# ONNX defines GroupNormalization (opset 21) by a function, whose variance is the mean of the squares less the square of
# the mean. ONNX Runtime has no kernel for it and computes that function in float32, as ONNX's evaluator does: of values
# around 100 with a deviation of 0.1, whose right results lie between -3 and 3, both are off by tenths, and of larger ones
# they take the root of a negative number. InstanceNormalization, which exporters write below opset 21, is right.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
          for name, shape in (("x", [2, 4, 8]), ("scale", [4]), ("bias", [4]), ("y", [2, 4, 8]))]


def model(operator, opset, **attributes):
    node = helper.make_node(operator, ["x", "scale", "bias"], ["y"], epsilon=1e-5, **attributes)
    graph = helper.make_graph([node], "normalize", values[:3], values[3:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    onnx.checker.check_model(made, full_check=True)
    return made


x = (100 + 0.1 * np.random.default_rng(0).standard_normal((2, 4, 8))).astype(np.float32)
feed = {"x": x, "scale": np.ones(4, np.float32), "bias": np.zeros(4, np.float32)}
exact = x.astype(np.float64)
exact = (exact - exact.mean(-1, keepdims=True)) / np.sqrt(exact.var(-1, keepdims=True) + 1e-5)
of_groups = model("GroupNormalization", 21, num_groups=4)  # of one channel each, which is the same


def off(outputs):
    return float(np.abs(outputs[0] - exact).max())


runtime = off(onnxruntime.InferenceSession(of_groups.SerializeToString()).run(None, feed))
with np.errstate(invalid="ignore"):
    evaluator = off(ReferenceEvaluator(of_groups).run(None, feed))
by_instance = model("InstanceNormalization", 21)
other = off(onnxruntime.InferenceSession(by_instance.SerializeToString()).run(None, feed))
print(f"onnxruntime {onnxruntime.__version__}, onnx {onnx.__version__}")
print(f"expected: off by at most 0.001, as InstanceNormalization is ({other:.4f}); "
      f"seen: ONNX Runtime off by {runtime:.3g}, ONNX's evaluator by {evaluator:.3g}")
raise SystemExit(None if min(runtime, evaluator) > 0.02 and other < 0.001 else "this has changed")
PYTHON
