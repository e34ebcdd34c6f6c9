#!/bin/sh
# The dynamo exporter of torch takes opset_version=26. Where the module has an operator that ONNX got after opset 18, such
# as Gelu (20), the file says opset 18 and holds that operator nevertheless, so that no runtime loads it; nothing is
# raised. Of a module without such an operator the file says opset 26, and opset 25 is written for both.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet \
    torch==2.15.0 onnx==1.23.2 onnxscript==0.7.2 onnxruntime==1.32.0 numpy==2.4.6 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import logging
import warnings

import onnx
import onnxruntime
import torch

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)


def written(module, opset):
    """The opset that a file says, its operators, and whether ONNX Runtime loads it."""
    program = torch.onnx.export(module, (torch.ones(2, 8),), dynamo=True, opset_version=opset, verbose=False)
    model = program.model_proto
    [says] = [entry.version for entry in model.opset_import if not entry.domain]
    try:
        onnxruntime.InferenceSession(model.SerializeToString())
    except onnxruntime.capi.onnxruntime_pybind11_state.InvalidGraph:
        return says, [node.op_type for node in model.graph.node], "refused"
    return says, [node.op_type for node in model.graph.node], "loads"


new, old = torch.nn.GELU(), torch.nn.Sigmoid()
print(f"torch {torch.__version__}, onnxscript, onnxruntime {onnxruntime.__version__}, onnx {onnx.__version__}")
seen = written(new, 26)
print(f"expected: (26, ['Gelu'], 'loads'), or an error of the exporter; seen: {seen}")
others = written(new, 25)[0], written(old, 26)[0]
print(f"at opset 25 the file says {others[0]}; of Sigmoid at 26 it says {others[1]}")
unchanged = seen == (18, ["Gelu"], "refused") and others == (25, 26)
raise SystemExit(None if unchanged else "this has changed")
PYTHON
