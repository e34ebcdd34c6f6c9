"""Build the module of a case: by its class or expression, with its weights, its submodule, and as it is prepared."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from conformance.case.declaration import Case
from conformance.case.made import part_of, value_of
from conformance.case.python import Folder, describe
from conformance.draw.draw import Draw, Maker
from conformance.draw.shapes import trace_sizes
from conformance.errors import Stopped, noting
from conformance.export.awake import PASSES, awaken, load_weights, settle
from conformance.export.expression import expression_module
from conformance.export.passed_inputs import Passing
from conformance.export.structured import take_tensors


def build(case: Case, folder: Folder) -> Any:
    """The module of a case, on which nothing was called yet but what the case itself asks for. Raises Stopped."""
    import torch

    says = case.says
    calls = partial(_calls, case, folder)
    torch.manual_seed(says.seed)
    np.random.seed(says.seed)
    random.seed(says.seed)
    arguments = {name: value_of(value, folder) for name, value in case.arguments.items()}
    with noting(partial(_refuse, case, folder)):
        if case.built is not None:
            module = case.built.module()
        elif says.module is not None:
            module = folder.resolve(says.module)(**arguments)
        else:
            module = expression_module(case, folder, arguments)
        if not isinstance(module, torch.nn.Module):
            raise TypeError(f"{says.module} gave a {type(module).__name__}, not a torch.nn.Module")
        if says.weights not in (None, "awake"):
            load_weights(module, case.folder / says.weights)
        if says.submodule is not None:
            module = part_of(module, says.submodule)
        own = type(module)
        if says.call is not None:
            take_tensors(module, case, folder)
        if settle(module, calls) and says.call is not None:
            take_tensors(module, case, folder)
        if says.weights == "awake":
            awaken(module, says.seed, calls)
        if says.prepare is not None:
            prepare, taking = folder.resolve(says.prepare), type(module)
            if taking is not own:  # it may call the module, which it knows by its own forward
                module.__class__ = own
            prepare(module)
            if taking is not own:
                module.__class__ = taking
        module.train(says.mode == "train")
        return module


def _calls(case: Case, folder: Folder, module: Any) -> Iterator[Callable[[], object]]:
    """Calls of the module on inputs that the case draws at the traced sizes."""
    make, sizes = Maker(case, folder.resolve), trace_sizes(case.dims, case.says.trace)
    passing = Passing(case.says.inputs, module)
    for number in range(PASSES):
        positional, keywords = passing.tensors(make(Draw(sizes, "plain", number)))
        yield partial(module, *positional, **keywords)


def compile_script(case: Case, folder: Folder, module: Any) -> Any:
    """The module compiled by torch.jit.script. Raises Stopped."""
    import torch

    with noting(partial(_refuse, case, folder)):
        return torch.jit.script(module)


def _refuse(case: Case, folder: Folder, error: Exception) -> None:
    """Stopped for what building the module raises."""
    if not isinstance(error, Stopped):
        what = case.says.module or "forward"
        text = f"{what} cannot be built: {describe(error, folder.path)}"
        raise Stopped("declare", type(error).__name__, text, "case") from error
