#!/bin/sh
# The parser of TensorRT for RTX has other defaults of Selu than ONNX, knows functions by their names without their
# domains, and leaves the lengths of keys of Attention unread. Each model is valid and taken.
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


def layers(text, opset):
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}, "a" : 1, "b" : 1]> g {text}')
    onnx.checker.check_model(model, full_check=True)
    builder = trt.Builder(log)
    network = builder.create_network(1)
    assert trt.OnnxParser(network, log).parse(model.SerializeToString())
    return builder, network, [network.get_layer(index) for index in range(network.num_layers)]


print(f"onnx {onnx.__version__}, tensorrt_rtx {trt.__version__}")
_, _, (selu,) = layers("(float[3] x) => (float[3] y) { y = Selu(x) }", 17)
selu.__class__ = trt.IActivationLayer
print(f"expected: 1.67326, 1.05070; seen: {selu.alpha:.5f}, {selu.beta:.5f}")
body = '<domain: "{}", opset_import: ["" : 17]> F (p) => (q) {{ q = {}(p) }}'
two = f"(float[3] x) => (float[3] y) {{ t = a.F(x)  y = b.F(t) }} {body.format('a', 'Neg')} {body.format('b', 'Exp')}"
_, _, both = layers(two, 17)
for layer in both:
    layer.__class__ = trt.IUnaryLayer
print(f"expected: NEG, EXP; seen: {', '.join(layer.op.name for layer in both)}")
attention = 'y = Attention(q, k, v, "", "", "", n)'
shapes = "(float[1,1,2,4] q, float[1,1,3,4] k, float[1,1,3,4] v, int64[1] n) => (float[1,1,2,4] y)"
_, _, made = layers(f"{shapes} {{ {attention} }}", 24)
read = {layer.get_input(index).name for layer in made for index in range(layer.num_inputs) if layer.get_input(index)}
print(f"expected: a layer that reads n; seen: {'one' if 'n' in read else 'none'}")
still = f"{selu.alpha:.5f}" == "1.67320" and [layer.op.name for layer in both] == ["NEG", "NEG"] and "n" not in read
raise SystemExit(None if still else "this has changed")
PYTHON
