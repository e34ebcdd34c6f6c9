"""Small files and modules of the kinds about which something untrue was said: sound ones, and planted beside them.

``python -m evidence.accusations.kinds`` checks all of them and prints what was said otherwise than expected; it takes
two or three minutes. Each has a number, that of the kind, and an expectation: ``right`` (verified, and nobody is
accused), ``nobody`` (nobody is accused), or the name of the error that has to be found, and no other.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tests.kit.cases import Bench, case_of, module_of
from tests.kit.models import model_of
from tests.kit.runtimes import wrong_runtime

RNG = np.random.default_rng(60)
W, V = (RNG.standard_normal((8, 8)).astype(np.float32) for _ in range(2))
HALF = W.astype(np.float16)
QUANTIZED = {"s": np.float32(0.1), "z": np.uint8(128)}
_Q = "{0}q = QuantizeLinear ({1}, s, z) {0} = DequantizeLinear ({0}q, s, z)"
NET = "net (float[n,8] x) => (float[n,8] y) { a = MatMul (x, w) b = Tanh (a) y = MatMul (b, v) }"
INT8 = """net (float[n,8] x) => (float[n,8] y) {
    wd = DequantizeLinear (w, s) a = MatMul (x, wd) b = Tanh (a) vd = DequantizeLinear (v, t) y = MatMul (b, vd) }"""
STEP = [np.float32(np.abs(one).max() / 127) for one in (W, V)]
STORED = [np.round(one / step).astype(np.int8) for one, step in zip((W, V), STEP, strict=True)]
IMAGE = {"k": RNG.standard_normal((2, 3, 3, 3)).astype(np.float32)}


@dataclass(frozen=True)
class File:
    """A file, or a second one beside ``original``."""

    kind: int
    name: str
    expects: str
    graph: str
    opset: int = 17
    constants: Mapping[str, Any] = field(default_factory=dict)
    original: tuple[str, Mapping[str, Any]] | None = None
    options: tuple[str, ...] = ()


def quantized(nodes: str, given: str = "[n,8]", made: str = "[n,8]") -> str:
    return f"net (float{given} x) => (float{made} y) {{ {_Q.format('d', 'x')} {nodes} {_Q.format('y', 'c')} }}"


def halves(nodes: str) -> str:
    return f"net (float[n,8] x) => (float[n,8] y) {{ h = Cast <to = 10> (x) {nodes} y = Cast <to = 1> (m) }}"


PLAIN = (NET, {"w": W, "v": V})
KINDS = (
    File(1, "weights in 8 bits", "right", INT8, 21, {"w": STORED[0], "v": STORED[1], "s": STEP[0], "t": STEP[1]}),
    File(1, "weights in blocks of 8 bits", "right",
         "net (float[n,8] x) => (float[n,8] y) "
         "{ d = DequantizeLinear <axis=0, block_size=4> (w, s) y = MatMul (x, d) }",
         21, {"w": STORED[0], "s": np.full((2, 8), STEP[0])}),
    File(1, "a scale of another size", "LowFidelity", INT8, 21,
         {"w": STORED[0], "v": STORED[1], "s": STEP[0], "t": -STEP[1]}, PLAIN),
    File(2, "a mean behind a quantizer", "right",
         quantized("c = GlobalAveragePool (d)", "[n,2,2,2]", "[n,2,1,1]"), 17, QUANTIZED),
    File(2, "halves of steps", "right", quantized("c = LeakyRelu <alpha=0.5> (d)"), 17, QUANTIZED),
    File(2, "means of windows", "right",
         quantized("c = AveragePool <kernel_shape=[2,2]> (d)", "[n,2,4,4]", "[n,2,3,3]"), 17, QUANTIZED),
    File(2, "sums of two", "right", quantized("c = Add (d, d)"), 19, QUANTIZED),
    File(2, "products that are quantized as they are added up", "right",
         "net (float[n,8] x) => (float[n,8] y) { q = QuantizeLinear (x, s, z) "
         "m = QLinearMatMul (q, s, z, w, s, z, t, z) y = DequantizeLinear (m, t, z) }",
         17, {**QUANTIZED, "w": RNG.integers(0, 255, (8, 8)).astype(np.uint8), "t": np.float32(0.2)}),
    File(3, "16 bits between casts", "right", halves("m = MatMul (h, w)"), 19, {"w": HALF}),
    File(3, "a softmax in 16 bits", "right", halves("a = MatMul (h, w) m = Softmax (a)"), 19, {"w": HALF}),
    File(3, "16 bits that overflow between casts", "Overflow", halves("m = MatMul (h, w)"), 19, {"w": HALF * 2e4}),
    File(4, "a sound conversion to 8 bits", "right", INT8, 21,
         {"w": STORED[0], "v": STORED[1], "s": STEP[0], "t": STEP[1]}, PLAIN),
    File(4, "a sound conversion to 16 bits", "right",
         halves("a = MatMul (h, w) b = Tanh (a) m = MatMul (b, v)"), 19,
         {"w": HALF, "v": V.astype(np.float16)}, PLAIN),
    File(4, "8 bits of a transposed weight", "LowFidelity", INT8, 21,
         {"w": STORED[0].T.copy(), "v": STORED[1], "s": STEP[0], "t": STEP[1]}, PLAIN),
    File(5, "zeros that somebody gives", "nobody", *PLAIN[:1], 17, PLAIN[1], None, ("--input", "x=0,0,0,0,0,0,0,0")),
    File(5, "values that somebody gives", "right", *PLAIN[:1], 17, PLAIN[1], None, ("--input", "x=1,2,3,4,5,6,7,8")),
    File(6, "a comparison that is always false", "nobody",
         "net (float[n,8] x) => (bool[n,8] y) { y = Greater (x, k) }", 17, {"k": np.float32(1e9)}),
    File(6, "random numbers", "nobody",
         "net (float[n,8] x) => (float[n,8] y) { r = RandomNormalLike (x) y = Add (x, r) }"),
    File(6, "a pool of NaN", "nobody",
         "net (float[n,2,4,4] x) => (float[n,2,2,2] y) { y = MaxPool <kernel_shape=[2,2], strides=[2,2]> (x) }",
         17, {}, None, ("--specials",)),
    File(7, "an operator for attention", "nobody",
         "net (float[n,2,5,4] q, float[n,2,5,4] k, float[n,2,5,4] v) => (float[n,2,5,4] y) "
         "{ y = Attention (q, k, v) }",
         23, {}, None, ("--specials",)),
    File(8, "a product beyond 31 bits", "right",
         "net (int64[n] x) => (int64[n] y) { y = Mul (x, k) }", 17, {"k": np.int64(1000003)}),
    File(8, "a quotient of large numbers", "right",
         "net (int64[n] x) => (int64[n] y) { y = Div (x, k) }", 17, {"k": np.int64(1000)}),
    File(8, "what is left of a division, as an index", "right",
         "net (int64[n,4] x) => (float[n,4] y) { m = Mod (x, k) y = Gather (t, m) }",
         17, {"k": np.int64(7), "t": np.arange(7, dtype=np.float32)}, None,
         ("--runtime", "onnxruntime")),
    File(9, "a norm in training mode", "TrainingMode",
         "net (float[n,8] x) => (float[n,8] y) { y, m, v = BatchNormalization <training_mode=1> (x, g, b, b, g) }",
         17, {"g": np.arange(1, 9, dtype=np.float32), "b": np.zeros(8, np.float32)}),
    File(9, "a norm whose new statistics are outputs", "right",
         "net (float[n,8] x) => (float[n,8] y, float[8] m, float[8] v) "
         "{ y, m, v = BatchNormalization <training_mode=1> (x, g, b, b, g) }",
         17, {"g": np.arange(1, 9, dtype=np.float32), "b": np.zeros(8, np.float32)}, None, ("--precision", "fp32")),
    File(9, "the same norm", "right",
         "net (float[n,8] x) => (float[n,8] y) { y = BatchNormalization (x, g, b, b, g) }",
         17, {"g": np.arange(1, 9, dtype=np.float32), "b": np.zeros(8, np.float32)}),
    File(9, "values dropped as in training", "TrainingMode",
         "net (float[n,8] x) => (float[n,8] y) { y = Dropout (x, r, t) }",
         17, {"r": np.float32(0.5), "t": np.bool_(True)}),
    File(10, "a product that overflows", "Overflow",
         "net (float16[n,8] x) => (float16[n,8] y) { y = MatMul (x, w) }", 17, {"w": HALF * 2e4}),
    File(10, "the same product", "right",
         "net (float16[n,8] x) => (float16[n,8] y) { y = MatMul (x, w) }", 17, {"w": HALF}),
    File(10, "squares that overflow inside", "Overflow",
         """net (float16[n,8] x) => (float16[n,8] y) {
         m = MatMul (x, w) q = Mul (m, m) s = ReduceMean <axes=[-1]> (q) r = Sqrt (s) y = Div (m, r) }""",
         17, {"w": HALF * 1e3}),
    File(10, "a mask of the lowest number", "nobody",
         "net (float16[n,8] x) => (float16[n,8] y) { m = Add (x, w) y = Softmax (m) }",
         17, {"w": np.where(np.eye(8)[:1] == 1, 0.0, -65504.0).astype(np.float16)}),
    File(11, "a norm whose shape OpenVINO infers otherwise", "WrongShape",
         "net (float[n,4,5] x, float[n,2] e) => (float[n,6] y) { l = ReduceL1 <axes=[2], keepdims=0> (x) "
         "y = Concat <axis=1> (l, e) }", 13),
    File(11, "a sum in its place", "right",
         "net (float[n,4,5] x, float[n,2] e) => (float[n,6] y) { l = ReduceMax <axes=[2], keepdims=0> (x) "
         "y = Concat <axis=1> (l, e) }", 13),
    File(12, "signs of zeros", "nobody", "net (float[n,8] x) => (float[n,8] y) { t = Abs (x) y = Reciprocal (t) }",
         17, {}, None, ("--specials", "--precision", "fp32")),
    File(13, "a second file with another weight", "WrongValue", NET, 17, {"w": W, "v": V.T.copy()}, PLAIN),
    File(13, "a second file that says the same", "right",
         "net (float[n,8] x) => (float[n,8] y) { t = MatMul (x, w) u = Tanh (t) y = MatMul (u, v) }",
         17, PLAIN[1], PLAIN),
    File(17, "an LSTM that clips", "right",
         """net (float[5,n,4] x) => (float[5,1,n,3] y) {
         y, h, c = LSTM <hidden_size=3, clip=0.5> (x, w, r, b) }""", 17,
         {"w": RNG.standard_normal((1, 12, 4)).astype(np.float32),
          "r": RNG.standard_normal((1, 12, 3)).astype(np.float32),
          "b": RNG.standard_normal((1, 24)).astype(np.float32)}),
    File(17, "a mean in 16 bits", "right",
         "net (float16[n,8] x) => (float16[n,1] y) { y = ReduceMean <axes=[1]> (x) }"),
    File(17, "a norm of layers in 16 bits", "right",
         "net (float16[n,8] x) => (float16[n,8] y) { y = LayerNormalization (x, g) }",
         17, {"g": np.arange(1, 9, dtype=np.float16)}),
)  # fmt: skip


def in_32_bits(inputs: Mapping[str, Any], outputs: list[Any]) -> list[Any]:
    return [out.astype(np.int32).astype(out.dtype) if out.dtype == np.int64 else out for out in outputs]


def at_one_size(inputs: Mapping[str, Any], outputs: list[Any]) -> list[Any]:
    return [out + np.float32(len(out) == 7) for out in outputs]


def above(inputs: Mapping[str, Any], outputs: list[Any]) -> list[Any]:
    return [out + np.float32(1e3) * (np.abs(out) > 2e4) for out in outputs]


def without_signs(inputs: Mapping[str, Any], outputs: list[Any]) -> list[Any]:
    return [np.where(out == 0, np.float32(0), out) for out in outputs]


LONG = """
forward: x * 1000003
inputs: {x: {type: 'int64[n]', values: {integers: {low: -90000, high: 90000}}}}
dims: {n: 1..4}"""
PYTHON = """
import torch
class Renormed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.rows = torch.nn.Embedding(6, 4)
    def forward(self, x):
        return x + self.rows.weight[:1] * 3
CALLS = []
class Counts(torch.nn.Module):
    def forward(self, x):
        CALLS.append(1)
        return x * (2 if len(CALLS) == 1 else 3)
"""
MODULES: tuple[tuple[int, str, str, str, str, Callable[[], AbstractContextManager[None]]], ...] = (
    (6, "a module that pools NaN", "open", case_of("F.max_pool2d(x, 2)", dims="", x="[2, 2, 4, 4]"), "specials",
     nullcontext),
    (6, "a module that draws random numbers", "NotDeterministic", case_of("x * torch.rand_like(x)"), "accuracy",
     nullcontext),
    (8, "a product of 64 bits", "right", LONG, "accuracy", nullcontext),
    (8, "the same in 32 bits", "WrongValue", LONG, "accuracy", lambda: wrong_runtime(in_32_bits)),
    (12, "every size of few", "right", case_of("x.exp()", dims="batch: 4..12"), "accuracy", nullcontext),
    (12, "wrong at one size alone", "WrongValue", case_of("x.exp()", dims="batch: 4..12"), "accuracy",
     lambda: wrong_runtime(at_one_size)),
    (12, "wrong above 1e4 alone", "WrongValue", case_of("x * 2"), "accuracy", lambda: wrong_runtime(above)),
    (12, "zeros without signs", "WrongValue", case_of("-x"), "specials", lambda: wrong_runtime(without_signs)),
    (12, "zeros with signs", "right", case_of("-x"), "specials", nullcontext),
    (12, "a module that counts its calls", "NotDeterministic", module_of("Counts"), "accuracy", nullcontext),
    (6, "a module that keeps rows", "right", module_of("Renormed"), "accuracy", nullcontext),
)  # fmt: skip
"""Cases: their kind, name, expectation, text, check and what is wrong meanwhile. ``open``: red, nobody at fault."""


@dataclass(frozen=True)
class Said:
    """One of them, with the words that were said of it."""

    kind: int
    name: str
    expects: str
    said: str

    @property
    def as_expected(self) -> bool:
        seen = {"right": ("right",), "nobody": ("right", "nobody")}.get(self.expects, (self.expects,))
        return self.said in seen


def said_of(records: list[dict[str, Any]]) -> str:
    """Return the errors of red cells with who is at fault where nobody is, or whether anything was verified."""
    red = [one for one in records if one["status"] == "failed"]
    if not red:
        return "right" if any(one["check"] in ("accuracy", "specials") and one["status"] == "passed"
                              for one in records) else "nobody"  # fmt: skip
    found = {str(one["error"]) if one["fault"] else "open" for one in red}
    return " and ".join(sorted(found))


def of_files(folder: Path) -> Iterator[Said]:
    """Check files without options in one run, and others one by one. OpenVINO has to be installed."""
    from conformance.front.cli import main

    def checked(*given: str) -> dict[str, list[dict[str, Any]]]:
        report = folder / "report.json"
        with redirect_stdout(StringIO()):
            options = ["--examples", "4", "--store", str(folder / "store"), "--output", f"json={report}"]
            main(["check", "--runtime", "onnxruntime,openvino", *options, *given])
        models = json.loads(report.read_text(encoding="utf-8"))["models"]
        return {Path(one["file"]).stem: [*_counted(one)] for one in models}

    (folder / "alone").mkdir()
    for number, one in enumerate(KINDS):
        by_itself = one.original is None and not one.options
        file = folder / ("alone" if by_itself else ".") / f"k{number}.onnx"
        onnx.save(model_of(one.graph, one.opset, **one.constants), file)
    alone = checked(str(folder / "alone"))
    for number, one in enumerate(KINDS):
        records = alone.get(f"k{number}")
        if records is None:
            files = [str(folder / f"k{number}.onnx")]
            if one.original is not None:
                onnx.save(model_of(one.original[0], 17, **one.original[1]), folder / f"o{number}.onnx")
                files.insert(0, str(folder / f"o{number}.onnx"))
            (records,) = checked(*files, *one.options).values()
        yield Said(one.kind, one.name, one.expects, said_of(records))


def _counted(model: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the records of a model that count; of one that was refused, that."""
    if model["refused"] is not None:
        yield {"status": "failed", "error": model["refused"], "fault": "case", "check": "export"}
    yield from (one for one in model["records"] if one["error"] != "NothingToQuantize")


def of_modules(folder: Path) -> Iterator[Said]:
    for number, (kind, name, expects, body, check, wrong) in enumerate(MODULES):
        bench = Bench(folder / str(number), folder / "store")
        bench.folder.mkdir()
        with wrong():
            record = bench.run(body, PYTHON, check=check, examples=4)
        yield Said(kind, name, expects, said_of([record.as_dict()]))


def everything() -> list[Said]:
    """Return what is said of all of them."""
    with ExitStack() as stack:
        files, modules = (Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(2))
        return [*of_modules(modules), *of_files(files)]


def main() -> int:
    found = everything()
    wrong = [one for one in found if not one.as_expected]
    for one in wrong:
        print(f"kind {one.kind}, {one.name}: {one.said} instead of {one.expects}")
    print(f"{len(found)} of these kinds, {len(wrong)} of which something else was said than expected")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
