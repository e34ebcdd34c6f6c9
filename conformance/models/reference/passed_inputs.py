"""Pass the inputs of a case to the forward of its module, by position or by keyword."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from conformance.case.files.inputs import Input
from conformance.process.arrays import Array
from conformance.process.errors import or_else

if TYPE_CHECKING:
    import torch
    from torch import Tensor

T = TypeVar("T")
Tensors: TypeAlias = "tuple[tuple[Tensor, ...], dict[str, Tensor]]"
"""Arguments by position and by keyword."""


class Passing:
    """The way in which the inputs of a case are passed to a module."""

    def __init__(self, inputs: Mapping[str, Input], module: Any) -> None:
        self._inputs, self._module = inputs, module

    def tensors(self, inputs: Mapping[str, Array], dtype: torch.dtype | None = None) -> Tensors:
        """Positional and keyword tensors, as the case declares them; floats converted to ``dtype`` if given."""
        import torch

        tensors = {}
        for name in self._inputs:
            array = inputs[name]
            # A copy where the array cannot be written to, which torch.from_numpy would warn about.
            tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
            if dtype is not None and tensor.is_floating_point():
                tensor = tensor.to(dtype)
            tensors[name] = tensor
        return self.passed(tensors)

    def passed(self, values: Mapping[str, T]) -> tuple[tuple[T, ...], dict[str, T]]:
        """Return the values of the inputs as positional and keyword arguments of forward.

        Keywords come in the order of forward's parameters, and then those that ``**kwargs`` takes: the TorchScript
        exporter makes inputs of the graph in that order, and dynamo in the order in which keywords are passed.
        """
        positional = tuple(values[name] for name in self._by_position)
        return positional, {word: values[name] for word, name in self._by_keyword.items()}

    @cached_property
    def _by_position(self) -> list[str]:
        return [name for name, declared in self._inputs.items() if declared.as_ is None]

    @cached_property
    def _by_keyword(self) -> dict[str, str]:
        """Return the names of the inputs that are passed by keyword, by the keyword."""
        inputs = self._inputs
        by_keyword = {declared.as_: name for name, declared in inputs.items() if declared.as_ is not None}
        try:
            in_order = [word for word in self.signature().parameters if word in by_keyword] if by_keyword else []
        except (TypeError, ValueError):  # forward is something compiled, which shows no signature
            in_order = []
        return {word: by_keyword[word] for word in dict.fromkeys([*in_order, *by_keyword])}

    def signature(self) -> inspect.Signature:
        """Return the signature of forward, through its decorators; TypeError or ValueError where it has none."""
        return inspect.signature(self._module.forward)

    def advice(self) -> str:
        """Say how inputs are passed that forward takes by keyword only; empty where none is passed by position."""
        parameters = or_else(inspect.Signature(), self.signature).parameters
        only = [name for name, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY]
        named = [f"{name}: {{type: ..., as: {name}}}" for name in only if name in self._by_position]
        return f"; what forward takes by keyword only is given as {' and '.join(named)}" if named else ""

    def in_graph(self) -> list[str]:
        """Return the names of the inputs in the order that they have in the graph, which is that of ``passed``."""
        return [*self._by_position, *self._by_keyword.values()]
