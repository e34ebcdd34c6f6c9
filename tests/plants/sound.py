"""The sound cases that defects are planted in: one or a few operators each, which pass as they are."""

from __future__ import annotations

from tests.plants.plant import Written

MODULES = """
import torch
import torch.nn.functional as F


class Linear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, 5)

    def forward(self, x):
        return self.layer(x)


class Wide(torch.nn.Module):
    def __init__(self, terms):
        super().__init__()
        self.layer = torch.nn.Linear(terms, 4, bias=False)

    def forward(self, x):
        return self.layer(x)


class Perceptron(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(6, 8)
        self.last = torch.nn.Linear(8, 5)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)))


class Conv(torch.nn.Module):
    def __init__(self, stride=1, groups=1):
        super().__init__()
        self.layer = torch.nn.Conv2d(4, 4, 3, stride=stride, padding=1, groups=groups)

    def forward(self, x):
        return self.layer(x)


class Transposed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1)

    def forward(self, x):
        return self.layer(x)


class LayerNorm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.LayerNorm(8)
        torch.nn.init.normal_(self.layer.weight)

    def forward(self, x):
        return self.layer(x)


class BatchNorm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.BatchNorm2d(4)
        torch.nn.init.uniform_(self.layer.running_var, 0.5, 2)
        torch.nn.init.normal_(self.layer.running_mean)

    def forward(self, x):
        return self.layer(x)


class Embedding(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Embedding(7, 4)

    def forward(self, i):
        return self.layer(i)


class LSTM(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.LSTM(4, 3, batch_first=True)

    def forward(self, x):
        return self.layer(x)[0]


class PRelu(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.PReLU(4)

    def forward(self, x):
        return self.layer(x)


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.queries, self.keys = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def forward(self, x):
        scores = self.queries(x) @ self.keys(x).transpose(1, 2) / 8 ** 0.5
        return torch.softmax(scores, -1) @ x


class RoiAlign(torch.nn.Module):
    def forward(self, x, ends):
        import torchvision

        corners = torch.cat([ends.min(1).values, ends.max(1).values], 1)
        boxes = torch.cat([torch.zeros_like(corners[:, :1]), corners], 1)
        return torchvision.ops.roi_align(x, boxes, 2, sampling_ratio=2)


class Scripted(torch.nn.Module):
    def forward(self, x):
        if x.size(0) > 1:
            return torch.erf(x)
        return torch.erf(x) * 2


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.second = torch.nn.Conv2d(8, 4, 3, padding=1)
        self.last = torch.nn.Linear(4, 5)

    def forward(self, x):
        x = self.second(torch.relu(self.first(x)))
        return self.last(x.permute(0, 2, 3, 1))
"""

TORCHSCRIPT, DYNAMO = "{torchscript: [17]}", "{dynamo: [20]}"


def case(what: str, inputs: str, dims: str, *more: str, export: str = TORCHSCRIPT, python: str = MODULES) -> Written:
    """A case on ONNX Runtime; ``what`` is its ``forward``, or ``module beside.Name``."""
    word, _, name = what.partition(" ")
    head = f"module: {name}" if word == "module" else f'forward: "{what}"'
    lines = [head, f"inputs: {{{inputs}}}", *([f"dims: {{{dims}}}"] if dims else []), "runtimes: onnxruntime"]
    return Written("\n".join([*lines, *more, f"export: {export}"]), python)


X, Y = 'x: "float32[batch, 4, 3]"', 'y: "float32[batch, 4, 3]"'
ROWS = 'x: "float32[batch, 6]"'
IMAGES = 'x: "float32[batch, 4, h, w]"'
BATCH, SIZES = "batch: 1..9", "batch: 1..4, h: 4..9, w: 4..9"


def bounded(low: float, high: float, shape: str = "batch, 4, 3", name: str = "x") -> str:
    return f'{name}: {{type: "float32[{shape}]", values: {{uniform: {{low: {low}, high: {high}}}}}}}'


def integers(low: int, high: int, shape: str = "batch, 4", name: str = "i") -> str:
    return f'{name}: {{type: "int64[{shape}]", values: {{integers: {{low: {low}, high: {high}}}}}}}'


SIN = case("torch.sin(x)", X, BATCH)
SUB = case("x - y", f"{X}, {Y}", BATCH)
DIV = case("x / (y.abs() + 1)", f"{X}, {Y}", BATCH)
LEAKY = case("F.leaky_relu(x, 0.2)", X, BATCH)
LEAKY_DYNAMO = case("F.leaky_relu(x, 0.2)", X, BATCH, export=DYNAMO)
SOFTMAX = case("torch.softmax(x, 1)", X, BATCH)
OLD_SOFTMAX = case("torch.softmax(x, 2)", X, BATCH, export="{torchscript: [12]}")
SOFTMAX_DYNAMO = case("torch.softmax(x, 1)", X, BATCH, export=DYNAMO)
MATMUL = case("x @ y", 'x: "float32[batch, 4, 32]", y: "float32[batch, 32, 5]"', BATCH)
LINEAR = case("module beside.Linear", ROWS, BATCH)
LINEAR_DYNAMO = case("module beside.Linear", ROWS, BATCH, export=DYNAMO)
WIDE = {
    terms: case("module beside.Wide", f'x: "float32[batch, 3, {terms}]"', BATCH, f"with: {{terms: {terms}}}")
    for terms in (64, 256, 1024)
}
PERCEPTRON = case("module beside.Perceptron", ROWS, BATCH)
CONV = case("module beside.Conv", IMAGES, SIZES)
CONV_DYNAMO = case("module beside.Conv", IMAGES, SIZES, export=DYNAMO)
STRIDED = case("module beside.Conv", IMAGES, SIZES, "with: {stride: 2, groups: 2}")
TRANSPOSED = case("module beside.Transposed", 'x: "float32[batch, 3, h, w]"', SIZES)
# rows of zeros occur
NORMALIZED = case(
    "x / (x.norm(dim=1, keepdim=True) + 1e-8)",
    'x: {type: "float32[batch, 3]", values: {choice: [0, 0, 0, 1, -2]}}', "batch: 1..9",
)  # fmt: skip
LAYER_NORM = case("module beside.LayerNorm", 'x: "float32[batch, 3, 8]"', BATCH)
BATCH_NORM = case("module beside.BatchNorm", IMAGES, SIZES)
MEAN = case("x.mean(-1)", X, BATCH)
SUM = case("x.sum(1)", X, BATCH)
CUMSUM = case("torch.cumsum(x, 1)", X, BATCH)
TOPK = case("torch.topk(x, 2, 1).values", X, BATCH)
ARGMAX = case("x.argmax(1)", 'x: {type: "float32[batch, 4]", values: {choice: [0, 1, 2]}}', BATCH)
GATHER = case("torch.gather(x, 1, i)", f'x: "float32[batch, 4]", {integers(0, 3)}', BATCH)
SCATTER = case(
    "x.scatter_add(1, i, y)", f'x: "float32[batch, 4]", {integers(0, 3, "batch, 5")}, y: "float32[batch, 5]"', BATCH
)
LAST = case("x[:, -1]", X, BATCH)
REFLECT = case("F.pad(x, (1, 2), mode='reflect')", X, BATCH)
BILINEAR = case("F.interpolate(x, scale_factor=2.0, mode='bilinear')", IMAGES, SIZES)
NEAREST = case("F.interpolate(x, size=(5, 7))", IMAGES, SIZES)
AVG_POOL = case("F.avg_pool2d(x, 3, 2, 1)", IMAGES, SIZES)
CLAMP = case("torch.clamp(x, -1.0, 1.0)", X, BATCH)
ROUND = case("torch.round(x)", 'x: {type: "float32[batch, 4]", values: {choice: [-2.5, -1.5, 0.5, 1.5, 0.3]}}', BATCH)
TRUNCATED = case("torch.div(i, 3, rounding_mode='trunc')", integers(-20, 20), BATCH)
TO_INTEGER = case("x.to(torch.int64)", bounded(-50, 50), BATCH)
WHERE = case("torch.where(x > 0, x, y)", f"{X}, {Y}", BATCH)
SIGMOID = case("torch.sigmoid(x)", X, BATCH)
TANH = case("torch.tanh(x)", X, BATCH)
ERF = case("torch.erf(x)", X, BATCH)
ERF_DYNAMO = case("torch.erf(x)", X, BATCH, export=DYNAMO)
EXP = case("torch.exp(x)", bounded(-3, 3), BATCH)
LOG = case("torch.log(x)", bounded(0.5, 4), BATCH)
SQRT = case("torch.sqrt(x)", bounded(0, 4), BATCH)
CAT = case("torch.cat([x, y], 1)", f"{X}, {Y}", BATCH)
SLICE = case("x[:, 1:3]", X, BATCH)
TURNED = case("x.transpose(1, 2) * 2", X, BATCH)
FLAT = case("x.flatten(1)", X, BATCH)
RESHAPED = case("x.reshape(x.shape[0], 2, 6)", X, BATCH)
ATTENTION = case("module beside.Attention", 'x: "float32[batch, time, 8]"', "batch: 1..4, time: 1..6")
LSTM = case("module beside.LSTM", 'x: "float32[batch, time, 4]"', "batch: 1..4, time: 1..6")
POINTS = bounded(-1.2, 1.2, "batch, 3, 5, 2", "g")
GRID = case("F.grid_sample(x, g, align_corners=False)", f"{IMAGES}, {POINTS}", SIZES)
SAMPLED = case("torch.erf(F.grid_sample(x, g, align_corners=False))", f"{IMAGES}, {POINTS}", SIZES)
EMBEDDING = case("module beside.Embedding", integers(0, 6), BATCH)
PRELU = case("module beside.PRelu", X, BATCH)
ELU = case("F.elu(x, 1.5)", bounded(-3, 3), BATCH)
RELU = case("torch.relu(x)", X, BATCH)
SQUARE = case("x ** 2", X, BATCH)
GELU = case("F.gelu(x)", X, BATCH, export=DYNAMO)
ROI_ALIGN = case(
    "module beside.RoiAlign", f'{IMAGES}, {bounded(0, 4, "n, 2, 2", "ends")}',
    "batch: 1..2, n: 1..4, h: 5..7, w: 5..7", export="{torchscript: [11]}",
)  # fmt: skip
MODULO = case("torch.remainder(i, 3)", integers(-20, 20), BATCH)
ANY = case("(x > 0).any(1)", X, BATCH)

SCRIPTED = case("module beside.Scripted", X, BATCH, "script: true")

PRECISION = """runtimes: onnxruntime
onnxruntime: {config: {session.x64quantprecision: 1}}
specials: false
export: {torchscript: [17]}
precisions: {fp16: {}, int8: {}}"""
NET = Written(
    f'module: beside.Net\ninputs: {{x: "float32[batch, 3, 6, 6]"}}\ndims: {{batch: 1..4}}\n{PRECISION}', MODULES
)
NET_TIGHT = Written(f"{NET.body}\ntolerance: {{fp16: {{sqnr: 58 dB}}, int8: {{sqnr: 38 dB}}}}", MODULES)
"""Asks for what the conversions can do, where the default limits are for what networks in general lose."""
