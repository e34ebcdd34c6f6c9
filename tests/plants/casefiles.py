"""Sound case files that together use every key, and what ``tests.plants.spoil`` puts into them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

SEEDS: Mapping[str, str] = {
    "shapes": """
defaults:
  export: {torchscript: {opsets: [17]}, dynamo: {opsets: [20]}}

first:
  about: >-
    A text that is folded
    over lines.
  tags: [R1, "two words"]
  forward: torch.asinh(x) + y * a
  with: {a: 3, kind: "torch.int32", nothing: null}
  inputs:
    x: float32[batch, 2*n]
    y: {type: "float32[batch, 1]", values: {uniform: {low: -3, high: 3.5}}}
    i: {type: "int64[k]", values: {integers: {low: 0, high: n - 1}}, as: index}
    p: {type: "int64[min(n, 7)]", values: {permutations: "min(n, 7)"}}
    m: {type: "int64[batch, n]", values: {padding: [0, 1]}}
    l: {type: "int64[batch, n]", values: {left_padding: [0, 1]}}
    o: {type: "int64[batch, n]", values: {positions_of: l}}
    e: {type: "int64[2]", values: {exactly: [1, 2]}}
    c: {type: "int8[a]", values: {choice: [1, 2, 5]}}
    b: {type: "float32[k]", sorted: true}
  dims: {batch: 1..64, n: 2..32 step 2, k: 1..n}
  where: [k <= n, batch != 3]
  trace: {batch: 4}
  examples: {shapes: 3, values: 2, boundary: 5}

defaults_alone: {about: short, forward: "torch.sin(x)", inputs: {x: "float32[3]"}, clones: true, returns: [past.0.k]}
""",
    "samples": """
sampled:
  about: samples of PyTorch's tests
  samples: {from: torch.op_db, only: [abs, "nn.*"], but: [nn.x], each: 2, grow: [sizes, values]}
""",
    "module": """
second:
  about: has a module
  module: modules.Second
  submodule: inner.0
  with: {size: 3, made: {new: modules.Made, with: {size: 3}}}
  vary: {stride: [1, 2], kind: {wide: [1, 2], none: null}}
  prepare: modules.prepare
  mode: train
  seed: 7
  weights: awake
  script: true
  inputs:
    x: {type: "float32[3, batch]", values: {normal: {mean: 0.5, std: 2.0}}}
    y: {type: "float32[batch]", values: {python: modules.values}}
  unused: [y]
  draw: modules.draw
  outputs:
    - one
    - {name: two, rows: in any order, vacuous: "it is zero"}
    - {name: three, indices_of: one, axis: -1}
    - {name: noise, random: "it is drawn"}
    - {name: boxes, rows: {match: iou, with: [one], at_least: 0.8}}
  dims: {batch: 0..8}
  export: {torchscript: [17]}
  specials: [x]
  vacuous: because
  hollow: because
  needs: [numpy, "command:git"]
  depends: data.npy
  libraries: [modules.library]
  fails:
    - when: {with: {stride: 2}, at: {batch: 2..4}, values: [large, nan]}
      stage: compare
      error: WrongValue
      fault: exporter
      because: planted
""",
    "exports": """
third:
  about: everything of exporters
  forward: ours.op(x)
  inputs: {x: "float32[n, m]"}
  dims: {n: 2..9, m: 2..n}
  export:
    torchscript:
      opsets: [13, 17]
      static: m
      functions: [functions.one]
      simplify: true
      options: {keep_initializers_as_inputs: true, export_params: true, do_constant_folding: false,
                training: eval, custom_opsets: {ours: 1}}
      symbolics: {"aten::sin": {function: symbolics.sin, without: another graph, ignores: {y: "unused"}}}
      registers: {"ours::op": symbolics.register}
    dynamo:
      opsets: 20
      static: [n]
      functions: functions.one
      simplify: false
      options: {keep_initializers_as_inputs: false, export_params: true, optimize: true}
      translations: {"ours::op": functions.one}
  graph:
    - when: {exporter: torchscript, opset: "< 17"}
      nodes: {Sin: 1}
      only: true
      absent: [Cos]
      inputs: [x]
      outputs: [y]
      initializers: 0
      overridable: 0
      domains: {"": 13}
      dims: {x: [symbolic, 3, null]}
  fails:
    - when: {exporter: dynamo, runtime: onnxruntime, check: accuracy, cpu: {has: avx2, lacks: avx512_vnni},
             versions: numpy > 1}
      stage: run
      because: planted
""",
    "precisions": """
fourth:
  about: precisions and tolerances
  forward: torch.nn.functional.linear(x, x)
  inputs: {x: "float32[batch, 4]"}
  dims: {batch: 1..16}
  export: {torchscript: [13, 17]}
  runtimes: [onnxruntime, onnx-reference]
  precisions:
    fp16: {exclude: {torchscript: "/head/*", dynamo: [Softmax]}}
    int8: {opsets: [17], exclude: LayerNormalization, operators: [MatMul], reduce_range: true,
           calibration: {method: percentile, percentile: 99.9, samples: 16, batch: 4, at: {batch: 3}, data: data.npz}}
    int8-entropy: {left_out: "takes too long"}
    int4-own: {by: beside.convert}
  tolerance:
    int4-own: {channel_sqnr: 16 dB, bias: 0.01}
    fp32: {rtol: 1.0e-4, atol: 1.0e-6, because: "it is long", outputs: {1: {rtol: 0.5}, two: {atol: 1.0e-8}}}
    fp16: {sqnr: 20 dB, runtime: 30, because: "measured",
           outputs: {0: {cosine: 0.99, magnitude: 0.1}, 1: {sqnr: 18, runtime: 25 dB}}}
    int8: {cosine: 0.9, magnitude: 0.2, because: "measured"}
  fails:
    - {when: {precision: int8, opset: "13..17"}, stage: convert, because: planted}
""",
    "file": """
sixth:
  about: a model that is a file
  onnx: net.onnx
  export: {onnx: {opsets: [17], file: other.onnx, simplify: true, static: [n], functions: beside.function}}
  precisions: {int8: {exclude: {onnx: Gemm}}}

measured:
  about: a score and a preparation of one's own
  onnx: net.onnx
  metric: {of: metrics.top1, data: data.npz, drop: 0.5, batch: 8}
  preprocess: {pytorch: modules.train, deployed: modules.deployed, data: data.npz, sqnr: 30 dB}

recorded_too:
  about: a model with what somebody recorded of it
  onnx: net.onnx
  recorded: {data: [data.npz], rtol: 1e-3, only: false}

stepped:
  about: a decoder that is run step by step
  module: modules.Decoder
  inputs:
    tokens: {type: "int64[batch, seq]", values: {integers: {low: 0, high: 9}}}
    mask: "bool[batch, past + seq]"
    past_key: float32[batch, past, 8]
  outputs: [logits, present_key]
  dims: {batch: 1..2, seq: 1..4, past: 0..9}
  steps: {count: 2, feed: {past_key: present_key}, token: {tokens: logits}, next: {mask: ones}, reorder: true,
          at_once: false}

given:
  about: a model whose values the graph says
  onnx: net.onnx
  inputs: {x: {type: "float32[n, 4]", values: {by_graph: 3}}, w: {type: "string[n]", values: {texts: [red, green]}}}
""",
    "deployment": """
fifth:
  about: deployments and budgets
  forward: torch.sin(x)
  inputs: {x: "float32[batch, 4]"}
  dims: {batch: 1..16}
  export: {torchscript: [17]}
  runtimes: [onnxruntime, tensorrt]
  onnxruntime: {config: {session.intra_op.allow_spinning: 1}}
  precisions: {fp16: {}}
  tensorrt:
    opsets: [17]
    typical: {batch: 8}
    workspace: 1 GiB
    optimization_level: 3
    tf32: true
    hardware_compatibility: ampere_plus
    timing_cache: false
    cuda_graph: true
    plugins: plugin.so
    targets: [sm80, sm89]
  latency:
    - {runtime: onnxruntime, precision: fp32, exporter: torchscript, at: {batch: 4}, at_most: 5 ms, percentile: 90}
    - {runtime: tensorrt, precision: fp16, at_most: 1.2 x pytorch, throughput: [1, 8], transfers: true, seconds: 2.5}
""",
}


def write_beside(folder: Path) -> None:
    """Writes the model that a seed names, and recorded data of it."""
    import numpy as np
    from onnx import TensorProto, helper, save

    node = helper.make_node("Abs", ["x"], ["y"])
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in "xy")
    graph = helper.make_graph([node], "net", [x], [y])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), folder / "net.onnx")
    values = np.ones((2, 4), np.float32)
    np.savez(folder / "data.npz", x=values, y=values)


# ---- what is put in the place of something ----------------------------------------------------------------------

NUMBERS = (
    "0", "-0", "-1", "1", "2", "3", "41", "255", "256", "65536", "2147483647", "2147483648", "2147483649",
    "9223372036854775807", "18446744073709551615", "18446744073709551616", "-9223372036854775809", "1" + "0" * 40,
    "9" * 5000, "0.0", "-0.0", "0.5", "1.5", "1e-45", "1e-400", "65504", "65505.0", "3.4e38", "3.5e38", "1e308",
    "-1e308", "1.7976931348623157e308", "1e400", "-1e400", ".inf", "-.inf", ".nan", "nan", "inf", "0x1F",
    "0x" + "F" * 3000, "0o17", "017", "0b11", "1_000", "12:30:45", "2001-01-01", "2001-13-45", "1.2.3", "+1", "1e",
)  # fmt: skip
SIZES = (
    "min(4)", "1..min(4)", "min()", "max(n)", "min", "max(min, 2)", "min(1, 2)", "1..max(2, 3)", "n", "n..n", "n - 9",
    "n..2*n", "1..", "..", "..4", "...", "1...8", "1..2..3", "1..8 step 0", "1..8 step", "1..8 step -1",
    "1..8 stepp 2",
    "1..8 step 99999999999", "1..1000000000000000000", "1..10**18", "9**9**9", "n**n", "1 << 99", "0..2147483648",
    "0..2147483647", "n*n*n*n..n*n*n*n*n", "*".join(["n"] * 200), "*".join(["2147483648"] * 40), "1//0",
    "n // (n - n)",
    "n % 0", "n..n // 0", "-1", "-3..4", "4..1", "0..0", "0", "1.5", "1..1.5", "1e3", "True", "None", "not n",
    "n and k",
    "n < k < 9", "n if n else 1", "lambda: 1", "[n]", "n.real", "n[0]", "__import__('os')", "f''", "'n'", "n @ n",
    "n /2", "~n", "(" * 90 + "n" + ")" * 90, "(" * 240 + "n" + ")" * 240, "-" * 490 + "n",
    "min(" * 80 + "n" + ", 1)" * 80,
    "min(*n, 2)", "min(n, key=k)", "\u0661..\u0664", "1..\u0664", "\u00b2", "n\u00b2", "\ufb01", "1 .. 8",
    " 3 ", "n n",
    "1or 2", "0_1", "00", "07", "1\n..8", "n #", "", " ", "\u00a01..4",
)  # fmt: skip
TEXTS = (
    "", " ", "x", "\u00fc", "\ufb01", "\u0661", "a" * 61, "a" * 5000, "a" + " " * 3000 + "b", "1" * 600, "float32[n]",
    "float32[]", "float32[[n]]", "float32[n", "float32[" + "n, " * 100 + "n]", "int8[1]", "bool[n]", "float16[n, -1]",
    "float32[1//0]", "float32[min(4)]", "complex64[2]", "float32[n][n]", "float32", "fp32", "int8-x", "int8-", "fp16",
    "torchscript", "dynamo", "onnxruntime", "tensorrt", "onnx-reference", "pytorch", "file.name", "a.b.c", ".", "..",
    "a..b", "../../x", "/etc/passwd", "aten::sin", "::", "a::b::c", "5 ms", "1 x", "1e999 x pytorch", "-1 ms",
    "nan ms",
    "1.2 x tensorrt int8", "1" * 400 + " ms", "20 dB", "1e9 dB", "9" * 300 + " dB", "99999999999 GiB", "0 MiB",
    "< 17",
    ">= 99999", "13..16", "16..13", "13..99999999999999999999", "== ", "avx2", "large", "nan", "compare", "export",
    "accuracy", "train", "eval", "in any order", "symbolic", "with", "defaults", "(a+)+$", "[", "*", "**", "a" * 129,
    "\\0", "\\x1b[31m", "\\ud800", "\\u202e", "\\n", "::error::x",
)  # fmt: skip
SHAPES = (
    "null", "~", "true", "false", "yes", "[]", "{}", "[1, a]", "{a: 1}", "[[]]", "[[[[1]]]]", "{a: {b: {c: [1]}}}",
    "[null]", "{null: 1}", "{1: 1}", "{1.5: 1}", "{true: 1}", "{[1]: 2}", "{? a : b}", "[1, 1]", "[17, 17]", "[17]",
    "[" * 20 + "]" * 20, "[" * 60 + "]" * 60, "[" * 400 + "]" * 400, "{a: " * 60 + "1" + "}" * 60, "&a 1", "*a",
    "!!int 3", "!x y", "!!map {a: 1}", "!!python/object/apply:os.system [x]", "{<<: {a: 1}}", "!!set {a}",
    "!!binary aGk=", "[" + ", ".join(map(str, range(200))) + "]", "[" + ", ".join(["x"] * 70) + "]",
    "{" + ", ".join(f"k{i}: {i}" for i in range(200)) + "}", "@x", "`x`", "%x", "'", '"', "|", ">", "- x",
    "? x", ": x", "#",
)  # fmt: skip
RAW = (
    "!!python/object/apply:os.system [x] ", "!tag ", "&a ", "*a", "<<: *a", "? ", "- ", "{", "}", "[", "]", ": ",
    "\t", "'", '"', "|", ">", "%YAML 1.1\n", "---\n", "...\n", "@", "`", "#", "\\", "\0", "\x07", "\x1b[2J", "\x85",
    "\ufeff", "\u2028", "\u202e", "\r", "\r\n", "\ufffe", "null", "1e400", "!!omap [a: 1]", "x: float32[[",
    "[" * 300, "{a: " * 300, "- " * 300, "? " * 300, "\n" * 50, " " * 2000,
)  # fmt: skip
