"""PyTorch's own samples, of its operators (OpInfo) and modules (ModuleInfo), in float32 and in evaluation mode."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.utils import _pytree

from conformance.case.samples.calls import ATTRIBUTES, Said, Unsaid, at, call_of, name_of
from conformance.case.samples.tried import operators, seed, stand_in_for_expecttest
from evidence.reach.translate import module_of

Database = Literal["operators", "modules"]


@dataclass(frozen=True)
class Sample:
    """A call, and how a case says it."""

    said: Callable[[], tuple[Said, list[torch.Tensor]]]
    """Raises Unsaid and Untaken."""
    tree: Any
    """Positional and keyword arguments of the call."""
    call: Callable[..., Any]
    by_name: bool = False
    """Whether the case calls what has the operator's name, where PyTorch's tests call a function of their own."""

    @property
    def tensors(self) -> list[torch.Tensor]:
        """All tensors of the call, in order."""
        return [leaf for leaf in _pytree.tree_leaves(self.tree) if isinstance(leaf, torch.Tensor)]

    def direct(self, tensors: Sequence[torch.Tensor]) -> Any:
        """The call with other tensors in place of its own."""
        left = iter(tensors)
        args, kwargs = _pytree.tree_map(
            lambda leaf: next(left) if isinstance(leaf, torch.Tensor) else leaf, self.tree
        )
        return self.call(*args, **kwargs)


def names(database: Database) -> list[str]:
    """Of all operators that take float32, with their variant, or of all classes of modules."""
    if database == "modules":
        return [info.name for info in _modules()]
    return list(operators())


def samples(database: Database, name: str, each: int) -> tuple[list[Sample], int]:
    """At most so many samples, evenly from all, and how many there are in all."""
    seed(0)
    make: Callable[[Any], Sample]
    if database == "operators":
        info = operators()[name]
        found = list(info.sample_inputs("cpu", torch.float32, requires_grad=False))
        make = functools.partial(_of_operator, info)
    else:
        info = next(info for info in _modules() if info.name == name)
        given = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=False, training=False)
        found = [one for one in given if one.forward_input is not None]
        make = functools.partial(_of_module, info)
    count = min(each, len(found))
    return [make(found[place * len(found) // count]) for place in range(count)], len(found)


@functools.cache
def _modules() -> list[Any]:
    stand_in_for_expecttest()
    from torch.testing._internal.common_modules import module_db

    return list(module_db)


def _of_operator(info: Any, sample: Any) -> Sample:
    args, kwargs = (sample.input, *sample.args), dict(sample.kwargs)
    path = name_of(info.op, info.name)

    def said() -> tuple[Said, list[torch.Tensor]]:
        if path is None:
            raise Unsaid("an operator that nothing in torch is called")
        return call_of(path, args, kwargs)

    return Sample(
        said, (args, kwargs), info.op, by_name=path is not None and at(path) is not info.op and path not in ATTRIBUTES
    )


def _of_module(info: Any, given: Any) -> Sample:
    made = (given.constructor_input.args, dict(given.constructor_input.kwargs))
    called = (tuple(given.forward_input.args), dict(given.forward_input.kwargs))

    def call(*args: Any, **kwargs: Any) -> Any:
        seed(0)  # the weights are those that a case of seed 0 has
        return info.module_cls(*made[0], **made[1]).eval()(*args, **kwargs)

    return Sample(lambda: module_of(info.module_cls, made, called), called, call)
