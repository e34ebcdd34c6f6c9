#!/bin/sh
# The parser of TensorRT for RTX counts a pooling window that begins in the padding, takes upper of Trilu for 0 where it
# is left out, does not read mode of SpaceToDepth, and takes a function of another domain for ONNX's operator of that
# name. Each model is valid and taken.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnx==1.23.2 tensorrt-rtx-cu12==1.7.1.116 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import onnx
import onnx.parser
import tensorrt_rtx as trt

log = trt.Logger(trt.Logger.ERROR)


def parsed(text, opset=17):
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}, "a" : 1]> g {text}')
    onnx.checker.check_model(model, full_check=True)
    builder = trt.Builder(log)
    network = builder.create_network(1)
    assert trt.OnnxParser(network, log).parse(model.SerializeToString())
    return builder, network


def said(text, kind, name, opset=17):
    """Return a property of the layers of one class."""
    builder, network = parsed(text, opset)
    layers = [network.get_layer(index) for index in range(network.num_layers)]
    found = [layer for layer in layers if layer.type == getattr(trt.LayerType, kind.upper())]
    for layer in found:
        layer.__class__ = getattr(trt, f"I{kind}Layer")
    return [str(getattr(layer, name)).rpartition(".")[2] for layer in found]


print(f"onnx {onnx.__version__}, tensorrt_rtx {trt.__version__}")
pool = "MaxPool<kernel_shape=[3,3], strides=[3,3], pads=[1,1,1,1], ceil_mode=1>(x)"
builder, network = parsed(f"(float[1,1,5,5] x) => (float[1,1,H,W] y) {{ y = {pool} }}")
sizes = tuple(network.get_output(0).shape)
print(f"expected: (1, 1, 2, 2), without the window that begins in the padding; seen: {sizes}")
trilu = [f"(float[3,4] x) => (float[3,4] y) {{ y = Trilu{upper}(x) }}" for upper in ("", "<upper=1>", "<upper=0>")]
left_out, one, zero = (said(text, "ElementWise", "op") for text in trilu)
print(f"expected: Trilu as with upper=1, {one}; seen: {left_out}, as with upper=0")
space = '(float[1,2,4,4] x) => (float[1,8,2,2] y) {{ y = SpaceToDepth<blocksize=2, mode="{}">(x) }}'
modes = [said(space.format(mode), "Shuffle", "second_transpose", 28) for mode in ("DCR", "CRD")]
print(f"expected: two orders for two modes of SpaceToDepth; seen: {'one' if modes[0] == modes[1] else 'two'}")
relu = '<domain: "a", opset_import: ["" : 17]> Relu (p) => (q) { q = Neg(p) }'
named = said(f"(float[3] x) => (float[3] y) {{ y = a.Relu(x) }} {relu}", "Activation", "type")
print(f"expected: no activation for a function Relu that negates; seen: {named}")
still = sizes == (1, 1, 3, 3) and left_out == zero != one and modes[0] == modes[1] and named == ["RELU"]
raise SystemExit(None if still else "this has changed")
PYTHON
