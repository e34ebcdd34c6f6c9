#!/bin/sh
# scatter_reduce with the mean: the exporter by dynamo writes ScatterElements without any reduction, so that the last
# value wins, and says nothing; the TorchScript exporter refuses.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet \
    torch==2.15.0 onnx==1.23.2 onnxscript==0.7.2 onnxruntime==1.32.0 numpy==2.4.6 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import warnings

import onnxruntime
import torch

warnings.filterwarnings("ignore")


class Mean(torch.nn.Module):
    """Take the means of the values of each index."""

    def forward(self, x):
        return torch.zeros(2).scatter_reduce(0, torch.tensor([0, 0, 1]), x, "mean", include_self=False)


x = torch.tensor([1.0, 5.0, 7.0])
program = torch.onnx.export(Mean(), (x,), dynamo=True, verbose=False)
nodes = [
    (node.op_type, [value.s.decode() for value in node.attribute if value.name == "reduction"])
    for node in program.model_proto.graph.node
    if node.op_type.startswith("Scatter")
]
session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
(new,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
print(f"torch {torch.__version__}, onnxruntime {onnxruntime.__version__}")
print(f"expected: {Mean()(x).tolist()}, or a refusal")
print(f"seen: {new.tolist()}, nodes {nodes}")
if new.tolist() == Mean()(x).tolist():
    raise SystemExit("this has changed")
PYTHON
