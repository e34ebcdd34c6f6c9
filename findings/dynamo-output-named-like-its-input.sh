#!/bin/sh
# Of a module that returns its input the dynamo exporter of torch names the output like the input, and calls the input
# x_orig. With input_names that are the names of forward's own arguments, which is what people give, the input gets its
# name back: the file has that name twice, and neither onnx nor ONNX Runtime takes it. The export raises nothing.
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


class Evened(torch.nn.Module):
    """Return what is contiguous already as it is."""

    def forward(self, x):
        return x.contiguous()


def written(**names):
    """The names of inputs and outputs of the file, and whether onnx takes it."""
    program = torch.onnx.export(Evened(), (torch.ones(2, 3),), dynamo=True, verbose=False, **names)
    model = program.model_proto
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError:
        return [value.name for value in (*model.graph.input, *model.graph.output)], "refused"
    onnxruntime.InferenceSession(model.SerializeToString())
    return [value.name for value in (*model.graph.input, *model.graph.output)], "taken"


print(f"torch {torch.__version__}, onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}")
seen, plain, other = written(input_names=["x"]), written(), written(input_names=["given"])
print(f"expected: a file whose input is x, and taken; seen: {seen}")
print(f"without input_names: {plain}; with another name: {other}")
unchanged = seen == (["x", "x"], "refused") and plain == (["x_orig", "x"], "taken") and other[1] == "taken"
raise SystemExit(None if unchanged else "this has changed")
PYTHON
