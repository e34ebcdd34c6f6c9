"""Make the values that YAML does not have.

Under ``with`` names of PyTorch's, and objects that are made, such as the configuration of a network; and a part of a
module.
"""

from __future__ import annotations

import difflib
import inspect
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from conformance.process.errors import Stopped, attempt, did_you_mean, shown

if TYPE_CHECKING:
    from torch.nn import Module

    from conformance.case.files.python import Folder


def is_made(value: Mapping[str, object]) -> bool:
    """Return whether a mapping stands for an object.

    ``{new: package.Class, with: {...}}`` or ``{file: x.json, of: package.Class}``.
    """
    return ("new" in value and value.keys() <= {"new", "with"}) or value.keys() == {"file", "of"}


def value_of(value: object, folder: Folder) -> object:
    """Return the value that a text or a mapping under ``with`` stands for.

    "torch.int32" is what PyTorch calls so, and a mapping that ``is_made`` the object; all else is as it stands there.
    Stopped at ``declare`` where it means nothing.
    """
    if isinstance(value, list):
        return [value_of(item, folder) for item in value]
    if isinstance(value, dict):
        if not is_made(value):
            return {key: value_of(item, folder) for key, item in value.items()}
        return _from_file(value, folder) if "file" in value else _new(value, folder)
    if isinstance(value, str) and value.startswith("torch."):
        return _of_torch(value)
    return value


def _of_torch(text: str) -> object:
    import torch

    named: object = torch
    for name in text.split(".")[1:]:
        if not hasattr(named, name):
            raise Stopped("declare", "MissingName", f"with: there is no {text}", "case")
        named = getattr(named, name)
    return named


def _class(value: object, key: str, folder: Folder) -> Any:
    if not isinstance(value, str) or "." not in value:
        text = f"with: {key}: {shown(value)} is no name such as configs.Tiny or package.Class"
        raise Stopped("declare", "MissingName", text, "case")
    return folder.resolve(value)


def _new(value: Mapping[str, Any], folder: Folder) -> object:
    from conformance.case.files.python import call

    arguments = value.get("with", {})
    if not isinstance(arguments, dict):
        text = f"with: {value['new']}: with: {shown(arguments)} is no mapping of arguments"
        raise Stopped("declare", "TypeError", text, "case")
    make = _class(value["new"], "new", folder)
    made = call(f"with: {value['new']}", make, **{name: value_of(item, folder) for name, item in arguments.items()})
    _check_known(value["new"], make, arguments, made)
    return made


def _check_known(name: str, make: Callable[..., object], arguments: Mapping[str, object], made: object) -> None:
    """Stopped for an argument that a class takes without knowing it: one that is no parameter, and that no object has
    that is made without arguments. A configuration keeps it and uses its default instead of what was meant."""
    try:
        parameters = inspect.signature(make).parameters
    except (TypeError, ValueError):
        return
    odd = [word for word in arguments if word not in parameters]
    if not odd or not inspect.isclass(make):
        return
    usual = attempt(make)
    if isinstance(usual, Exception):  # it needs arguments, so that nothing is known of what it would have
        return
    known = [word for word in (*parameters, *vars(usual)) if not word.startswith("_")]
    for word in odd:
        if hasattr(usual, word):
            continue
        # Some classes take any argument without saying so, those of transformers among them, which are dataclasses by
        # their signature; and some that are no field mean something. There only a slip of the pen is one.
        slip = hasattr(made, word) and difflib.get_close_matches(word, known, n=1, cutoff=_SLIP)
        if _takes_any(parameters) or slip:
            text = f"with: {name} knows no {shown(word)}{did_you_mean(word, known)}"
            raise Stopped("declare", "TypeError", text, "case")


_SLIP = 0.9  # of the letters of two names, the share from which on the other name is taken to be meant


def _takes_any(parameters: Mapping[str, inspect.Parameter]) -> bool:
    return any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())


def _from_file(value: Mapping[str, object], folder: Folder) -> object:
    from conformance.case.files.python import call

    make, name = _class(value["of"], "of", folder), value["file"]
    file = folder.path / str(name)
    if not isinstance(name, str) or not file.is_file():
        raise Stopped("declare", "MissingFile", f"with: there is no {shown(name)} beside the case file", "case")
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        text = f"with: {name} cannot be read as JSON: {' '.join(str(error).split())}"
        raise Stopped("declare", "WrongFile", text, "case") from None
    if not isinstance(said, dict):
        text = f"with: {name} holds no object of names and values, but {shown(said)}"
        raise Stopped("declare", "WrongFile", text, "case")
    if hasattr(make, "from_dict"):
        return call(f"with: {value['of']}.from_dict", make.from_dict, said)
    return call(f"with: {value['of']}", make, **said)


def part_of(module: Module, path: str) -> Module:
    """Return the submodule with this path; Stopped at ``declare`` where there is none."""
    parts: dict[str, Module] = dict(module.named_modules())
    if path not in parts:
        near = did_you_mean(path, [known for known in parts if known])
        text = f"submodule: {type(module).__name__} has no '{path}'{near}"
        raise Stopped("declare", "MissingName", text, "case")
    return parts[path]
