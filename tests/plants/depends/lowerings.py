"""Ways to depend on how operators are lowered: symbolics, translations, those of PyTorch itself, operators in C++."""

from __future__ import annotations

import functools
import importlib.util
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests.plants.depends.surroundings import SYMBOLIC
from tests.plants.depends.way import Place, Way, case_text

OPERATOR = """
import torch
{imports}

@torch.library.custom_op("depends_NAME::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


@twice.register_fake
def _(x):
    return torch.empty_like(x)

{translation}
"""
TRANSLATION = "def twice_to_onnx(x):\n    return op.Mul(x, op.CastLike(FACTOR, x))\n"
LOADED = """
import torch

torch.ops.load_library("OUTSIDE/operator.so")
factor = torch.ops.depends_library.factor()


class Net(torch.nn.Module):
    def forward(self, x):
        return x * (factor if torch.onnx.is_in_onnx_export() else 2.0)
"""
LIBRARY = """
#include <torch/library.h>
static const volatile double numbers[2] = {12345.678901, 2.0};
double factor() { return numbers[1]; }
TORCH_LIBRARY(depends_library, library) { library.def("factor() -> float", &factor); }
"""
FUNCTION = """
from onnxscript import opset17 as op
from onnxscript import script
from onnxscript.values import Opset

domain = Opset("depends", 1)


@script(domain, default_opset=op)
def Asinh(x):
    return op.Mul(op.Asinh(x), op.Div(op.Constant(value_float=FACTOR), op.Constant(value_float=2.0)))


def asinh(g, x):
    return g.op("depends::Asinh", x)
"""
EDITS = {
    "torchlib": (
        "onnxscript/function_libs/torch_lib/ops/core.py",
        "def aten_asinh(",
        "op.Asinh(self)",
        "op.Sinh(self)",
    ),
    "torchlib_helper": (
        "onnxscript/function_libs/torch_lib/ops/core.py",
        "def aten_atan(",
        "op.Atan(self)",
        "op.Tan(self)",
    ),
    "own_symbolic": (
        "torch/onnx/_internal/torchscript_exporter/symbolic_opset9.py",
        "def erf(",
        '"Erf"',
        '"Tanh"',
    ),
    "torchlib_unused": (
        "onnxscript/function_libs/torch_lib/ops/core.py",
        "def aten_acosh(",
        "op.Acosh(self)",
        "op.Cosh(self)",
    ),
}
"""Edits of PyTorch's own lowerings: the file, where in it, what is replaced and by what."""


def ways() -> Iterator[Way]:
    yield from beside()
    yield from of_torch()
    yield from models()


def beside() -> Iterator[Way]:
    """Yield lowerings that stand beside the case."""
    wrong = ("'Asinh'", "'Sinh'")
    yield Way(
        "symbolic",
        "a symbolic function",
        files={"modules.py": _two("def asinh(g, x):\n    return g.op({}, x)\n", wrong)},
        python="",
        case=SYMBOLIC,
        cluster=True,
    )
    yield Way(
        "symbolic_helper",
        "what a symbolic function calls in another module",
        python="from helpers import operator\n\ndef asinh(g, x):\n    return g.op(operator(), x)\n",
        files={"helpers.py": _two("def operator():\n    return {}\n", wrong)},
        case=SYMBOLIC,
    )
    registers = (
        "from torch.onnx import register_custom_op_symbolic\n\n"
        "def register():\n"
        "    register_custom_op_symbolic('aten::asinh', lambda g, x: g.op({}, x), 17)\n"
    )
    yield Way(
        "registrar",
        "a function that registers a symbolic",
        files={"modules.py": _two(registers, wrong)},
        python="",
        case=case_text(
            "registers a symbolic",
            "forward: torch.asinh(x)",
            export='{torchscript: {opsets: [17], registers: {"aten::asinh": modules.register}}}',
        ),
    )
    translated = case_text(
        "a translation",
        "forward: modules.twice(x)",
        export='{dynamo: {opsets: [20], translations: {"depends_NAME::twice": modules.twice_to_onnx}}}',
    )
    own = OPERATOR.format(imports="from onnxscript import opset18 as op", translation=TRANSLATION)
    yield Way(
        "translation",
        "a translation for dynamo",
        python=own,
        files={"modules.py": own},
        case=translated,
        cluster=True,
    )
    yield Way(
        "translation_helper",
        "what a translation calls in another module",
        python=OPERATOR.format(
            imports="", translation="def twice_to_onnx(x):\n    from helpers import lowered\n    return lowered(x)\n"
        ),
        files={
            "helpers.py": "from onnxscript import opset18 as op\n\n" + TRANSLATION.replace("twice_to_onnx", "lowered")
        },
        case=translated,
    )
    yield Way(
        "local_function",
        "an ONNX local function",
        python=FUNCTION,
        files={"modules.py": FUNCTION},
        case=case_text(
            "a function",
            "forward: torch.asinh(x)",
            export='{torchscript: {opsets: [17], functions: modules.Asinh, symbolics: {"aten::asinh": modules.asinh},'
            " options: {custom_opsets: {depends: 1}}}}",
        ),
    )
    yield Way(
        "operator_library",
        "a library of PyTorch operators in C++, built again",
        python=LOADED,
        files={"OUTSIDE/operator.so": operators},
    )


def of_torch() -> Iterator[Way]:
    """Yield lowerings of PyTorch itself, edited in a copy of the folders that have them."""
    for name, what, forward, export in (
        ("torchlib", "a lowering of torchlib", "torch.asinh(x)", "{dynamo: [20]}"),
        ("torchlib_helper", "another lowering of the same file", "torch.atan(x)", "{dynamo: [20]}"),
        ("own_symbolic", "a symbolic of PyTorch itself", "torch.erf(x)", "{torchscript: [17]}"),
    ):
        yield Way(
            name,
            f"{what}, edited",
            case=case_text(what, f"forward: {forward}", export=export),
            turn=functools.partial(_edit_installed, name),
            round="lowerings",
        )
    yield Way(
        "torchlib_unused",
        "a lowering of torchlib that the case does not use",
        round="lowerings",
        sound=True,
        case=case_text("uses another", "forward: torch.sin(x)", export="{dynamo: [20]}"),
        turn=functools.partial(_edit_installed, "torchlib_unused"),
    )


def models() -> Iterator[Way]:
    """Yield models with weights beside them."""
    case = """
NAME:
  about: a file in place of a module
  onnx: right.onnx
  export: {onnx: {opsets: [17], file: run.onnx}}
  dims: {n: 1..4}
  runtimes: onnxruntime
  specials: false
"""
    for name, what, inside in (
        ("external", "a file of external weights", False),
        ("external_branch", "a file of external weights in the branch of an If", True),
    ):
        model = functools.partial(_model, inside)
        yield Way(
            name,
            what,
            case=case,
            python="",
            files={
                "right.onnx": lambda factor, model=model: model(None),
                "run.onnx": lambda factor, model=model: model("w.bin"),
                "w.bin": lambda factor: np.full(1, factor, "f4").tobytes(),
            },
        )


def _model(inside: bool, external: str | None) -> bytes:
    """Return a model that multiplies by a weight, which is 2 or lies in an external file."""
    from onnx import TensorProto, checker, helper

    tensor = helper.make_tensor("w", TensorProto.FLOAT, [1], [2.0])
    if external is not None:
        tensor.ClearField("float_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", external), ("offset", "0"), ("length", "4")):
            entry = tensor.external_data.add()
            entry.key, entry.value = key, value
    value = functools.partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT)
    x, y = value("x", shape=["n", 3]), value("y", shape=["n", 3])
    if not inside:
        graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "g", [x], [y], [tensor])
    else:
        yes = helper.make_graph(
            [helper.make_node("Mul", ["x", "w"], ["a"])], "yes", [], [value("a", shape=["n", 3])], [tensor]
        )
        no = helper.make_graph([helper.make_node("Neg", ["x"], ["b"])], "no", [], [value("b", shape=["n", 3])])
        size = helper.make_node("Size", ["x"], ["size"])
        zero = helper.make_tensor("zero", TensorProto.INT64, [], [0])
        condition = helper.make_node("Greater", ["size", "zero"], ["condition"])
        branch = helper.make_node("If", ["condition"], ["y"], then_branch=yes, else_branch=no)
        graph = helper.make_graph([size, condition, branch], "g", [x], [y], [zero])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    if external is None:
        checker.check_model(model)
    return bytes(model.SerializeToString())


def _two(text: str, values: tuple[str, str]) -> tuple[str, str]:
    return text.format(values[0]), text.format(values[1])


def operators(factor: float) -> bytes:
    """Return a library of PyTorch operators, in whose bytes the number is replaced."""
    parts = [np.array([12345.678901, number]).tobytes() for number in (2.0, factor)]
    made = _built()
    assert made.count(parts[0]) == 1
    return made.replace(*parts)


@functools.cache
def _built() -> bytes:
    from torch.utils.cpp_extension import include_paths, library_paths

    with tempfile.TemporaryDirectory() as name:
        made = Path(name) / "operator.so"
        command = ["g++", "-shared", "-fPIC", "-O0", "-std=c++20", "-x", "c++", "-", "-o", str(made)]
        command += [f"-I{folder}" for folder in include_paths()] + [f"-L{folder}" for folder in library_paths()]
        subprocess.run([*command, "-lc10", "-ltorch_cpu"], input=LIBRARY, text=True, check=True)
        return made.read_bytes()


def overlay(site: Path) -> None:
    """Lay out the edited packages in a folder: links to what is installed, but for copies of folders with edits."""
    copied = {Path(file).parent for file, *_ in EDITS.values()}
    for folder in sorted({parent for place in copied for parent in (place, *place.parents) if parent.name}):
        real = _installed(folder.parts[0]) / folder
        (site / folder).mkdir(parents=True, exist_ok=True)
        for entry in real.iterdir():
            target = site / folder / entry.name
            if folder in copied and entry.is_file():
                shutil.copy2(entry, target)
            elif (
                not any(place.is_relative_to(folder / entry.name) for place in copied) and entry.name != "__pycache__"
            ):
                target.symlink_to(entry)
    for package in {place.parts[0] for place in copied}:
        for entry in _installed(package).glob(f"{package}-*.dist-info"):
            (site / entry.name).symlink_to(entry)


def _installed(package: str) -> Path:
    """Return the folder in which a package is installed."""
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent.parent


def edit_installed(name: str, site: Path) -> None:
    """Make one of the edits in the copies of a folder."""
    file, where, old, new = EDITS[name]
    text = (site / file).read_text(encoding="utf-8")
    start = text.index(where)
    assert old in text[start : start + 1500], where
    (site / file).write_text(text[:start] + text[start:].replace(old, new, 1), encoding="utf-8")


def _edit_installed(name: str, place: Place, changed: bool) -> None:
    if changed:
        edit_installed(name, place.site)
    elif not (place.site / "onnxscript").exists():
        overlay(place.site)
