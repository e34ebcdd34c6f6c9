"""Open a function in a runtime, as a node of ONNX or in PyTorch: arrays go in and come out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper

from conformance.process.arrays import Array
from conformance.results.records.environment import versions
from conformance.runtimes import opener, registry
from evidence.numbers.functions import Function
from evidence.numbers.right import Format

Kernel = Callable[[Array], Array]
"""Computes the results of inputs of one format, [n], in it."""
TORCH = "torch"
OPSET = 22
"""The first in which all of them take bfloat16."""


def runtimes() -> dict[str, str]:
    """Return the version of PyTorch and of each runtime that this host has and that runs models, by name."""
    names = [name for name in registry.RUNNING if not registry.named(name).builds and registry.absence(name) is None]
    installed = {package: version for package, version in versions().items() if version}
    packages = {**{name: registry.named(name).packages for name in names}, TORCH: (TORCH,)}
    return {name: next(installed[one] for one in packages[name] if one in installed) for name in packages}


@contextlib.contextmanager
def opened(name: str, function: Function, of: Format) -> Iterator[Kernel]:
    """Open it with one thread; raises what the runtime raises on a node that it does not run."""
    torch.set_num_threads(1)  # by which what is right is computed as well
    if name == TORCH:
        yield lambda x: _in_torch(function, x)
        return
    with TemporaryDirectory() as folder:
        file = Path(folder, "node.onnx")
        onnx.save(model(function, of), file)
        with opener(name)(file, ()) as session:
            yield lambda x: np.asarray(session.direct.run({"x": x})[0])


def model(function: Function, of: Format) -> onnx.ModelProto:
    """Return a model of one node: ``y = function(x)`` of one dynamic dimension."""
    dtype, exponents = helper.np_dtype_to_tensor_dtype(of.dtype), []
    if function.exponent is not None:
        exponents.append(numpy_helper.from_array(np.array(function.exponent, of.dtype), "exponent"))
    names = ["x", *(one.name for one in exponents)]
    node = helper.make_node(function.operator or function.name, names, ["y"], **function.attributes)
    x, y = (helper.make_tensor_value_info(name, dtype, ["n"]) for name in "xy")
    graph = helper.make_graph([node], "one", [x], [y], exponents)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    onnx.checker.check_model(made, full_check=True)
    return made


def _in_torch(function: Function, x: Array) -> Array:
    if x.dtype.name != "bfloat16":
        return function.in_torch(torch.from_numpy(x)).numpy()
    half = torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
    return function.in_torch(half).view(torch.int16).numpy().view(x.dtype)
