"""Record what each submodule returns in PyTorch: a ``Call`` for each time that a submodule is called."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.arrays import Array

if TYPE_CHECKING:
    import torch

Key = tuple[Any, ...]
"""Equal for two tensors that are the same: the same memory, looked at in the same way, with the same content."""


@dataclass(frozen=True)
class Call:
    """One call of a submodule, or of the module itself, whose path is empty."""

    path: str
    """As in ``named_modules``; a module that has several names goes by its first."""
    type: str
    number: int
    """How many calls of the same submodule came before."""
    entered: tuple[int, ...]
    """The ids of the calls that enclose this call, from the outermost, and its own; calls are numbered as they
    begin."""
    chain: tuple[str, ...]
    """The paths of the calls in ``entered``."""
    inputs: tuple[Key, ...]
    outputs: tuple[Array, ...]
    """The tensors among what the call returned, depth first."""
    keys: tuple[Key, ...]
    """The keys of ``outputs``."""
    batch_norm: bool = False

    @property
    def id(self) -> int:
        return self.entered[-1]


def calls_of(run: Callable[[], object]) -> list[Call]:
    """The calls of submodules that ``run`` makes, in the order in which they return.

    The first module that is called is the root. Modules that are no submodules of the root do not count, and neither
    do those inside a scripted module, whose calls Python never sees.
    """
    from torch.nn.modules import module

    watch = _Watch()
    before = module.register_module_forward_pre_hook(watch.before)
    after = module.register_module_forward_hook(watch.after, with_kwargs=True)
    try:
        run()
    finally:
        before.remove()
        after.remove()
    return watch.calls


class _Watch:
    """The hooks, and the calls that they have seen."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._names: dict[int, str] = {}
        self._open: list[tuple[int, int, tuple[Key, ...]]] = []
        self._begun = 0
        self._counts: dict[str, int] = {}
        self._kept: list[Any] = []
        """Tensors seen, which must not be freed: other tensors would get their memory, and with it their keys."""

    def before(self, module: torch.nn.Module, inputs: Any) -> None:
        if not self._names:
            self._names = {id(submodule): name for name, submodule in module.named_modules()}
        if id(module) in self._names:
            # Keys of the inputs are taken here, since the module may change them in place.
            self._open.append((id(module), self._begun, self._keys(_tensors(inputs))))
            self._begun += 1

    def after(self, module: torch.nn.Module, inputs: Any, keywords: Any, result: Any) -> None:
        if id(module) not in self._names:
            return
        while self._open[-1][0] != id(module):  # a call that raised, which somebody caught
            self._forget(self._open.pop()[1])
        entered = tuple(number for _, number, _ in self._open)
        chain = tuple(self._names[identity] for identity, _, _ in self._open)
        _, _, given = self._open.pop()
        tensors = _tensors(result)
        number = self._counts.get(chain[-1], 0)
        self._counts[chain[-1]] = number + 1
        self.calls.append(
            Call(
                path=chain[-1], type=type(module).__name__, number=number, entered=entered, chain=chain,
                inputs=given + self._keys(_tensors(keywords)), outputs=tuple(map(_copied, tensors)),
                keys=self._keys(tensors), batch_norm=_is_batch_norm(module),
            )
        )  # fmt: skip

    def _forget(self, number: int) -> None:
        """Takes a call that never returned out of the chains of the calls that seemed to be inside it."""
        for index, call in enumerate(self.calls):
            if number in call.entered:
                kept = [(id_, path) for id_, path in zip(call.entered, call.chain, strict=True) if id_ != number]
                entered, chain = zip(*kept, strict=True)
                self.calls[index] = dataclasses.replace(call, entered=entered, chain=chain)

    def _keys(self, tensors: Sequence[torch.Tensor]) -> tuple[Key, ...]:
        self._kept += tensors
        return tuple(map(_key, tensors))


def _tensors(value: Any) -> list[torch.Tensor]:
    import torch
    from torch.utils import _pytree

    return [leaf for leaf in _pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _key(tensor: torch.Tensor) -> Key:
    if not tensor.numel():  # has no memory to know it by
        return ("empty", id(tensor))
    return (tensor.data_ptr(), str(tensor.dtype), tuple(tensor.shape), tensor.stride(), tensor._version)


def _copied(tensor: torch.Tensor) -> Array:
    """A copy, as the next module may work in place."""
    return np.array(tensor.detach().cpu().numpy())


def _is_batch_norm(module: torch.nn.Module) -> bool:
    from torch.nn.modules.batchnorm import _BatchNorm

    return isinstance(module, _BatchNorm)


def paired(calls: Sequence[Call], others: Sequence[Call]) -> list[tuple[Array, ...]] | None:
    """The outputs of ``others``, another run of the same module, for each of ``calls``.

    None where the other run called other submodules, or in another order.
    """

    def way(run: Sequence[Call]) -> Iterator[tuple[object, ...]]:
        return ((call.path, call.entered, len(call.outputs)) for call in run)

    return [call.outputs for call in others] if list(way(calls)) == list(way(others)) else None
