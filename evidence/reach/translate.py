"""From a module of PyTorch's and its arguments to what a case file says of them; calls of operators are told by
``conformance.case.samples.calls``."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from conformance.case.samples.calls import Said, Unsaid, declared, kind_of, named

CONSTANT = 64
"""The most numbers of a tensor that is written out as an argument of a constructor."""


def argument(value: Any) -> Any:
    """A value under ``with``. Raises Unsaid."""
    if isinstance(value, torch.Tensor):
        if value.numel() > CONSTANT:
            raise Unsaid("a large tensor as an argument of the constructor")
        return {"new": "torch.tensor", "with": {"data": value.tolist(), "dtype": str(value.dtype)}}
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, torch.dtype):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [argument(one) for one in value]
    if type(value) is dict:
        return {str(key): argument(one) for key, one in value.items()}
    if (path := named(value)) is not None:
        return path
    if dataclasses.is_dataclass(value) and (path := named(type(value))) is not None:
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
        return {"new": path, "with": {name: argument(one) for name, one in fields.items()}}
    if isinstance(value, torch.nn.Module) and (path := named(type(value))) is not None:
        try:
            usual = type(value)()
        except TypeError:
            raise Unsaid(kind_of(value)) from None
        if repr(usual) == repr(value) and not list(value.parameters()):
            return {"new": path}
    raise Unsaid(kind_of(value))


def structure(value: Any, tensors: list[torch.Tensor]) -> Any:
    """An input of forward, nested as it is. Raises Unsaid and Untaken."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return declared(value)
    if value is None:
        return None
    if type(value) in (bool, int, float, str):
        return {"constant": value}
    if isinstance(value, torch.dtype):
        return {"constant": str(value)}
    if isinstance(value, (list, tuple)):
        return {type(value).__name__: [structure(one, tensors) for one in value]}
    if type(value) is dict:
        return {"dict": {str(key): structure(one, tensors) for key, one in value.items()}}
    raise Unsaid(kind_of(value))


Arguments = tuple[Sequence[Any], Mapping[str, Any]]
"""By position, and by keyword."""


def module_of(cls: type[torch.nn.Module], made: Arguments, called: Arguments) -> tuple[Said, list[torch.Tensor]]:
    """The case of a module of a class, made and called with these arguments. Raises Unsaid and Untaken."""
    said: Said = {"module": named(cls) or f"torch.nn.{cls.__name__}"}
    given = {name: argument(value) for name, value in _bound(cls, *made).items()}
    if given:
        said["with"] = given
    tensors: list[torch.Tensor] = []
    args, kwargs = called
    words = list(inspect.signature(cls.forward).parameters)[1:]
    inputs: Said = {}
    for number, value in enumerate(args):
        inputs[words[number] if number < len(words) else f"x{number}"] = structure(value, tensors)
    for name, value in kwargs.items():
        one = structure(value, tensors)
        inputs[name] = {**one, "as": name} if isinstance(one, dict) else one
    return {**said, "inputs": inputs}, tensors


def _bound(cls: type[torch.nn.Module], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Said:
    signature = inspect.signature(cls)
    given: Said = {}
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            raise Unsaid("arguments of a constructor without names")
        given |= value if kind is inspect.Parameter.VAR_KEYWORD else {name: value}
    return given
