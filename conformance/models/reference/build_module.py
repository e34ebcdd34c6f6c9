"""Build the module of a case: by its class or expression, with its weights, its submodule, and as it is prepared.

A module whose forward takes lists, tuples, mappings, objects or constants, changes its inputs, or returns more than
a graph can, becomes one that takes tensors alone, leaves them as they are, and returns tensors.
"""

from __future__ import annotations

import inspect
import linecache
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np
import torch
from torch.nn import Module

from conformance.case.draw.draw import Draw, Maker
from conformance.case.draw.shapes import trace_sizes
from conformance.case.files.declaration import Case
from conformance.case.files.made import part_of, value_of
from conformance.case.files.python import Folder, describe
from conformance.models.reference.awake import PASSES, awaken, load_weights, settle
from conformance.models.reference.expression import expression_module
from conformance.models.reference.passed_inputs import Passing
from conformance.process.errors import Stopped, noting


def build(case: Case, folder: Folder) -> Module:
    """The module of a case, on which nothing was called yet but what the case itself asks for. Raises Stopped."""
    says = case.says
    calls = partial(_calls, case, folder)
    torch.manual_seed(says.seed)
    np.random.seed(says.seed)
    random.seed(says.seed)
    arguments = {name: value_of(value, folder) for name, value in case.arguments.items()}
    with noting(partial(_refuse, case, folder)):
        module: Module
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
        _set_mode(module, says.mode == "train")
        return module


def _set_mode(module: Module, train: bool) -> None:
    """Set the mode of a module. One that ``torch.export`` has made, as PT2E quantizes, has the mode of inference in
    its graph and refuses to set any."""
    try:
        module.train(train)
    except NotImplementedError:
        if train:
            raise


def _calls(case: Case, folder: Folder, module: Module) -> Iterator[Callable[[], object]]:
    """Yield calls of the module on inputs that the case draws at the traced sizes."""
    make, sizes = Maker(case, folder.resolve), trace_sizes(case.dims, case.says.trace)
    passing = Passing(case.says.inputs, module)
    for number in range(PASSES):
        positional, keywords = passing.tensors(make(Draw(sizes, "plain", number)))
        yield partial(module, *positional, **keywords)


def compile_script(case: Case, folder: Folder, module: Module) -> Module:
    """Return the module compiled by torch.jit.script. Raises Stopped."""
    with noting(partial(_refuse, case, folder)):
        scripted: Module = torch.jit.script(module)
        return scripted


def _refuse(case: Case, folder: Folder, error: Exception) -> None:
    """Stopped for what building the module raises."""
    if not isinstance(error, Stopped):
        what = case.says.module or "forward"
        text = f"{what} cannot be built: {describe(error, folder.path)}"
        raise Stopped("declare", type(error).__name__, text, "case") from error


def take_tensors(module: Module, case: Case, folder: Folder) -> None:
    """Have the module's ``forward`` take the tensors of the case, one by one, and put its arguments together itself.

    The module stays what it is, with its parameters and submodules by their names: only its class is another, derived
    from its own. Its ``forward`` is written out as source, for exporters that read it. Stopped at ``declare`` for a
    scripted module, and for arguments that forward does not have.
    """
    if isinstance(module, torch.jit.ScriptModule):
        text = "lists, mappings and constants as inputs, clones and returns need a forward that is not scripted"
        raise Stopped("declare", "Scripted", text, "case")
    own, writer = type(module), _Writer(case, folder)
    given = case.says.call or ()
    arguments = _bound(module, given, [writer(entry["is"]) for entry in given])
    names = ["self", *(name.replace(".", "_") for name in case.says.inputs)]
    call = f"_own.forward(self, {', '.join(arguments)})"
    paths = case.says.returns
    source = f"def forward({', '.join(names)}):\n    return {f'_returned({call})' if paths else call}\n"
    file = f"<forward of {case.name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    scope = {"_own": own, "_returned": partial(_returned, paths), **writer.values}
    exec(compile(source, file, "exec"), scope)
    module.__class__ = type(own.__name__, (own,), {"forward": scope["forward"], "__module__": own.__module__})


def _returned(paths: Sequence[str], result: object) -> tuple[object, ...]:
    """Return the values at the paths in the result of a forward. Raises LookupError where there is nothing."""
    return tuple(_at(result, path, path.split(".")) for path in paths)


def _at(value: Any, path: str, words: Sequence[str]) -> Any:
    for word in words:
        number = int(word) if word.isdecimal() else None
        if isinstance(value, Mapping):
            found = word if word in value else number
            value = value[found] if found in value else _nothing(value, path, word)
        elif number is not None:
            listed = isinstance(value, Sequence) and number < len(value)
            value = value[number] if listed else _nothing(value, path, word)
        else:
            value = getattr(value, word) if hasattr(value, word) else _nothing(value, path, word)
    return value


def _nothing(value: object, path: str, word: str) -> NoReturn:
    raise LookupError(f"returns: {path}: there is no {word} in a {type(value).__name__}{_known(value)}")


def _known(value: object) -> str:
    """Return the names that could have been meant."""
    if isinstance(value, Mapping):
        return f", which has {', '.join(map(str, value))}"
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return f" of {len(value)}"
    own = [name for name in getattr(value, "__dict__", ()) if not name.startswith("_")]
    fields = getattr(value, "_fields", own)
    return f", which has {', '.join(fields)}" if fields else ""


class _Writer:
    """Writes nodes as Python; values that have no literal are under names of their own."""

    def __init__(self, case: Case, folder: Folder) -> None:
        self._folder = folder
        clones = case.says.clones
        self._cloned = clones if isinstance(clones, list) else list(case.says.inputs) if clones else []
        self.values: dict[str, object] = {}

    def __call__(self, node: Mapping[str, Any]) -> str:
        if "tensor" in node:
            name = str(node["tensor"]).replace(".", "_")
            return f"{name}.clone()" if node["tensor"] in self._cloned else name
        if "constant" in node:
            return self._named(value_of(node["constant"], self._folder))
        if "list" in node:
            return f"[{', '.join(map(self, node['list']))}]"
        if "tuple" in node:
            return f"({''.join(f'{self(inner)}, ' for inner in node['tuple'])})"
        inside = node["dict"] if "dict" in node else node["with"]
        mapping = "{" + ", ".join(f"{key!r}: {self(inner)}" for key, inner in inside.items()) + "}"
        return mapping if "dict" in node else f"{self._named(self._folder.resolve(node['new']))}(**{mapping})"

    def _named(self, value: object) -> str:
        if value is None or isinstance(value, (bool, int, str)):
            return repr(value)
        name = f"_value_{len(self.values)}"
        self.values[name] = value
        return name


def _bound(module: Module, arguments: Sequence[Mapping[str, Any]], texts: Sequence[str]) -> list[str]:
    """Arguments as they stand in the call: by keyword where ``as`` says so, or where a list, a mapping or
    a constant is called as a parameter is; the others in their order. Stopped where forward takes fewer."""
    parameters: Mapping[str, inspect.Parameter]
    try:
        parameters = inspect.signature(module.forward).parameters
    except (TypeError, ValueError):  # something compiled, which shows no signature
        parameters = {}
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    in_order = [name for name, parameter in parameters.items() if parameter.kind in kinds]
    words: dict[int, str] = {}
    for number, argument in enumerate(arguments):
        if argument.get("as") is not None:
            words[number] = argument["as"]
        elif "tensor" not in argument["is"] and argument["name"] in parameters:
            words[number] = argument["name"]
    free = [name for name in in_order if name not in words.values()]
    takes_more = not parameters or any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters.values())
    first, later = [], []
    for number, text in enumerate(texts):
        if number in words:
            later.append(f"{words[number]}={text}")
        elif free and words and not takes_more:
            later.append(f"{free.pop(0)}={text}")
        elif free or takes_more:
            first.append(text)
            free = free[1:]
        else:
            known = ", ".join(in_order) or "none"
            said = f"forward takes no more arguments than {known}; {arguments[number]['name']} is too many"
            raise Stopped("declare", "TypeError", said, "case")
    return [*first, *later]
