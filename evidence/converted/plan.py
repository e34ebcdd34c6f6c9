"""The converters of the sound files, and their environments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

PACKAGES: Mapping[str, Sequence[str]] = {
    "here": (),
    "nncf": ("nncf", "onnx", "onnxruntime", "numpy"),
    "modelopt": ("nvidia-modelopt[onnx]", "onnxconverter-common"),
    "olive": ("olive-ai", "requests"),
    "quark": ("amd-quark",),
    "torchao": ("torchao",),
}
"""The environments by name, and what is installed in one of its own; ``here`` is this one."""
BESIDE = {"olive", "quark", "torchao"}
"""Those that see what is installed here too: they need torch, of 5 GB."""

_ALL = ("mlp", "cnn", "depthwise", "residual", "attention", "embedded", "gated", "lstm", "gru", "step")
_FEWER = ("mlp", "cnn", "residual", "attention", "embedded", "lstm", "step")
_PRODUCTS = ("tokenwise-21", "attention-21", "gated-21", "embedded-21")

PLAN: Mapping[str, Mapping[str, Sequence[str]]] = {
    "here": {
        **dict.fromkeys(("static-qdq", "static-s8", "static-u8s8"), _ALL),
        **dict.fromkeys(("static-entropy", "static-percentile", "static-symmetric", "static-reduced"), _FEWER),
        "static-16": ("mlp-21", "cnn-21", "attention-21"),
        **dict.fromkeys(("static-qoperator", "static-qoperator-channel"), _ALL[:-1]),
        **dict.fromkeys(("dynamic", "dynamic-channel"), _ALL), "dynamic-u8": _FEWER,
        **dict.fromkeys(("int4", "int4-32", "int4-level4", "int4-qdq", "int4-qdq-32", "int4-hqq", "int2",
                         "int8-weights"), _PRODUCTS),
        "ort-fp16": _ALL, "ort-fp16-io32": _FEWER, "ort-fp16-kept": ("attention", "embedded"),
        "suite-fp16": _FEWER, "suite-int8": _ALL, "suite-int8-entropy": ("cnn", "attention"),
    },
    "nncf": {
        "nncf": (*_FEWER, "depthwise"), "nncf-transformer": ("cnn", "mlp", "attention", "step", "embedded"),
        "nncf-exact-bias": ("cnn", "mlp"),
        **dict.fromkeys(("nncf-int8-weights", "nncf-int4-weights", "nncf-int4-asym", "nncf-int4-scales",
                         "nncf-int4-awq"), _PRODUCTS[:3]),
    },
    "modelopt": {
        **dict.fromkeys(("common-fp16", "common-fp16-io32"), _FEWER),
        **dict.fromkeys(("autocast-fp16", "autocast-bf16"), ("mlp", "attention", "gated", "residual")),
        **dict.fromkeys(("modelopt-int8", "modelopt-int8-entropy"), ("cnn", "attention", "depthwise", "embedded",
                                                                     "residual")),
        **dict.fromkeys(("modelopt-int4", "modelopt-awq", "modelopt-fp8"), ("attention", "gated", "tokenwise")),
    },
    "olive": dict.fromkeys(("olive-dynamic", "olive-rtn"), ("mlp", "gated-21")),
    "quark": {
        "quark": ("mlp", "cnn"),
        "quark-power-of-2": ("mlp", "attention", "embedded", "tokenwise", "lstm", "step"),
    },
    "torchao": {
        "torchao-pt2e": ("mlp-21", "gated-21"),
        "torchao-weights": ("mlp-21", "gated-21", "attention-21", "mlp", "gated"),
        "torchao-int4": ("mlp-21", "gated-21"),
    },
}  # fmt: skip
"""By environment the converters of ``convert.py``, and the networks that each is given."""

SMALL = {"here": {"static-s8": ("mlp",), "int4": ("gated-21",), "dynamic": ("mlp",)}}
"""The same, to see that it works."""

REAL: Mapping[str, str] = {
    "suite-int8-step": "ONNX Runtime 1.32.0 alone gives 3.77 in place of 31 in the output present_key: its optimizer "
    "moves a Q/DQ pair, which is between this output and a product, before the output.",
    **dict.fromkeys(
        ("nncf-transformer-mlp", "nncf-transformer-cnn"),
        "OpenVINO 2026.4.1 alone gives other values, at 23 and 32 dB, on a processor without VNNI; ONNX Runtime "
        "gives the same with its optimizer and without, and OpenVINO too once each tensor inside is an output; with "
        "LP_TRANSFORMS_MODE=NO it folds the product by columns before a QuantizeLinear wrongly.",
    ),
    "common-fp16-io32-step": "The full check of onnx.checker refuses the file: a MatMul of float16 and float32.",
}
"""Reds of sound files that are no accusation, as somebody has shown without the suite."""
