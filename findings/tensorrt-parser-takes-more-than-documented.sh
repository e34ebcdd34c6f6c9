#!/bin/sh
# The list of operators beside the public parser of TensorRT 10.15 is of ONNX's own, and restricts GridSample to four
# dims, TopK to fewer than 3,840 values in order, Resize to nearest and linear, LSTM to layout 0, and opsets to 9 to 24.
# The parser of TensorRT for RTX takes all of these and two operators of com.microsoft, and refuses what the same list
# restricts elsewhere. Each model is valid.
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

log = trt.Logger(trt.Logger.INTERNAL_ERROR)


def takes(text, opset=18):
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}, "com.microsoft" : 1]> g {text}')
    onnx.checker.check_model(model, full_check=True)
    builder = trt.Builder(log)
    network = builder.create_network(0)
    return trt.OnnxParser(network, log).parse(model.SerializeToString())


def top(of, count, ordered=1):
    shapes = f"(float[2,{of}] x) => (float[2,{count}] y, int64[2,{count}] i)"
    return f"{shapes} {{ k = Constant<value=int64[1]{{{count}}}>() y, i = TopK<sorted={ordered}>(x, k) }}"


RELU = "(float[2] x) => (float[2] y) { y = Relu(x) }"
GRID = "(float[1,2,3,4,5] x, float[1,2,2,2,3] g) => (float[1,2,2,2,2] y) { y = GridSample<mode=\"linear\">(x, g) }"
SCALE = "s = Constant<value=float[4]{1.0,1.0,0.5,0.5}>()"
HALF = f"(float[1,1,8,8] x) => (float[1,1,4,4] y) {{ {SCALE} y = Resize<%s>(x, , s) }}"
FIRST = "y = LSTM<hidden_size=3, layout=1>(x, w, r)"
LSTM = f"(float[3,4,2] x, float[1,12,2] w, float[1,12,3] r) => (float[3,4,1,3] y) {{ {FIRST} }}"
POOL = "(float[1,2,9,9] x) => (float[1,2,5,5] y) { y = MaxPool<kernel_shape=[3,3], dilations=[2,2]>(x) }"
ADDS = "(float[4] x, int64[1,1] i, float[1] u) => (float[4] y) { y = ScatterND<reduction=\"add\">(x, i, u) }"
OTHER = "(float[1,2,8] x, float[1,2,8] z, float[8] w) => (float[1,2,8] y) { y = com.microsoft.%s }"
print(f"onnx {onnx.__version__}, tensorrt_rtx {trt.__version__}")
restricted = {
    "GridSample of five dims": takes(GRID, 20),
    "TopK of 4,000": takes(top(5000, 4000)),
    "TopK in no order": takes(top(50, 4, 0)),
    "cubic Resize": takes(HALF % 'mode="cubic"'),
    "LSTM with layout 1": takes(LSTM),
    "opset 8": takes(RELU, 8),
    "opset 28": takes(RELU, 28),
    "MultiHeadAttention of com.microsoft": takes(OTHER % "MultiHeadAttention<num_heads=2>(x, z, z)"),
    "SkipSimplifiedLayerNormalization of com.microsoft": takes(OTHER % "SkipSimplifiedLayerNormalization(x, z, w)"),
}
refused = {
    "MaxPool with dilations": takes(POOL),
    "Resize with antialiasing": takes(HALF % 'mode="linear", antialias=1'),
    "ScatterND that adds": takes(ADDS),
}
taken = ", ".join(name for name, took in restricted.items() if took)
print(f"expected: nothing that the list leaves out is taken; seen: taken {taken}")
others = ", ".join(name for name, took in refused.items() if took)
print(f"expected: none of {', '.join(refused)}; seen: taken {others or 'none'}")
raise SystemExit(None if all(restricted.values()) and not any(refused.values()) else "this has changed")
PYTHON
