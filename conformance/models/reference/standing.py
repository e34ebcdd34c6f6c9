"""Notice what a call has changed of a module, and put it back as it was.

A module may write its own weights (``Embedding(max_norm=...)``), count its calls, or keep what it computed. Each call
then starts from the module as it was built, as the call of a copy would.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from conformance.case.files.copying import copied
from conformance.models.reference.state import parts, sum_of


class Standing:
    """The content of a module at one time, as far as it can be seen quickly: which objects, and how often tensors
    were written to."""

    def __init__(self, module: nn.Module, *, tensors: bool, sums: bool = False) -> None:
        """``tensors`` is whether parameters and buffers count, or attributes alone; ``sums`` also adds up their
        values, as PyTorch does not count what is written by way of ``data``."""
        self._module, self._tensors, self._sums = module, tensors, sums
        self._held: list[object] = []  # so that no other object gets the id of one
        self._next_hook = RemovableHandle.next_id  # one counter numbers the hooks of all modules
        self._seen = self._now = dict(self._looks())

    def remove_hooks(self) -> None:
        """Remove the hooks that were registered since: a module that notes that it has its hooks, and has that put
        back, would register them once more."""
        for hooks in _hooks_of(self._module):
            for key in [key for key in hooks if key >= self._next_hook]:
                del hooks[key]

    def changes(self) -> list[str]:
        """Return the names of what is other now, as ``encoder.calls``."""
        self._now = dict(self._looks())
        return [name for name in {**self._seen, **self._now} if _other(self._seen, self._now, name)]

    def told(self, names: Iterable[str]) -> list[str]:
        """Return those of the names that say that a module keeps state: parameters, buffers, and plain values such as
        counters. What else changes is mostly what a module computed once."""
        tensors = {*dict(self._module.named_parameters()), *dict(self._module.named_buffers())}
        plain = {name for looks in (self._seen, self._now) for name, look in looks.items() if type(look) in _PLAIN}
        return [name for name in names if name in tensors | plain]

    def _looks(self) -> Iterator[tuple[str, object]]:
        looks: dict[int, object] = {}
        for path, part in self._module.named_modules():
            before = f"{path}." if path else ""
            for name, value in _held_by(part, self._tensors):  # of a network thousands, most of them plain
                yield before + name, value if type(value) in _PLAIN else self._look(value, looks)

    def _look(self, value: object, looks: dict[int, object]) -> object:
        """Return what is equal as long as a value stays what it is."""
        if type(value) is tuple and {type(inner) for inner in value} <= _PLAIN:  # no value inside can change
            self._held.append(value)
            return (id(value),)
        if value is None or isinstance(value, (bool, int, float, str)):
            return repr(value)
        if isinstance(value, Tensor):
            self._held.append(value)
            return id(value), value._version, *([sum_of(part) for part in parts(value)] if self._sums else [])
        if callable(value):  # a module or a class among them
            return (id(value),)
        if id(value) not in looks:
            self._held.append(value)
            looks[id(value)] = id(value)
            looks[id(value)] = (id(value), *self._inside(value, looks))
        return looks[id(value)]

    def _inside(self, value: object, looks: dict[int, object]) -> Iterator[object]:
        if isinstance(value, (Mapping, list, tuple, set, frozenset)) or hasattr(value, "__dict__"):
            named = value if isinstance(value, Mapping) else getattr(value, "__dict__", {})
            plain = value if isinstance(value, (list, tuple, set, frozenset)) else ()
            yield from (self._look(inner, looks) for inner in [*named, *named.values(), *plain])
        else:  # a generator of numbers, an iterator, an array
            yield from map(sum_of, parts(value))


_NOTHING = object()
_PLAIN = {type(None), bool, int, float, str}


def _other(seen: Mapping[str, object], now: Mapping[str, object], name: str) -> bool:
    """Return whether a value is another one than it was; 0, 0.0, -0.0 and False are four."""
    one, two = seen.get(name, _NOTHING), now.get(name, _NOTHING)
    if one is two:
        return False
    if type(one) in _PLAIN:
        return type(one) is not type(two) or repr(one) != repr(two)
    return one != two


def _held_by(part: nn.Module, tensors: bool) -> Iterator[tuple[str, object]]:
    """Return what a submodule itself holds, without its hooks and what else every module has."""
    if tensors:
        yield from part._parameters.items()
        yield from part._buffers.items()
    own = _of_every_module()
    yield from [(name, value) for name, value in vars(part).items() if name not in own]


def _hooks_of(module: nn.Module) -> Iterator[dict[int, object]]:
    for part in module.modules():
        yield from (vars(part).get(name) or {} for name in _of_every_module() if "hooks" in name)


@cache
def _of_every_module() -> frozenset[str]:
    return frozenset(vars(torch.nn.Module()))


def put_back(module: nn.Module, pristine: nn.Module, names: Iterable[str]) -> None:
    """Give a module what ``pristine``, which was built alike and never called, has under these names."""
    ours, theirs = (dict(root.named_modules()) for root in (module, pristine))
    memo = {id(theirs[path]): ours[path] for path in theirs if path in ours}
    for one, other in ((ours[path], theirs[path]) for path in theirs if path in ours):
        for name, tensor in (*other._parameters.items(), *other._buffers.items()):
            memo[id(tensor)] = getattr(one, name, tensor)
    with torch.no_grad():
        for name in names:
            path, _, own = name.rpartition(".")
            if path in ours and path in theirs:
                _put_back(ours[path], theirs[path], own, memo)


def _put_back(one: nn.Module, other: nn.Module, name: str, memo: dict[int, object]) -> None:
    for kind in ("_parameters", "_buffers"):
        mine, right = getattr(one, kind), getattr(other, kind)
        if name in right and right[name] is not None:
            own = mine.get(name)
            if kind == "_parameters" and own is not None and own.shape == right[name].shape:
                own.copy_(right[name])  # others may have the same parameter
            else:
                mine[name] = copied(right[name])
            return
        if name in mine:
            mine[name] = None
            if name not in right:
                del mine[name]
            return
    if name in vars(other):
        vars(one)[name] = copied(vars(other)[name], dict(memo))
    else:
        vars(one).pop(name, None)
