"""Make inputs of a case of what a module was called with.

Types come from tensors that were seen, dims from sizes that differ.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from conformance.case.files.dims import DTYPES
from conformance.extras.draft.guessed_inputs import PADDING, Constant, Guess, Tree, no_input, padding_of

if TYPE_CHECKING:
    from torch import Tensor, nn

KEPT = 8
"""Calls of a module that are looked at."""
AXES = 64
"""The most axes of a tensor of PyTorch."""

HIDES = -1e4
"""From which number down what is added to a score hides it."""
AS_SEEN = "as far as seen in the calls"


@dataclass(frozen=True)
class SeenTensor:
    """A tensor that a module was called with."""

    dtype: str
    sizes: tuple[int, ...]
    low: float
    high: float
    levels: tuple[float, ...]
    """Its values, of floats that have at most two."""


@dataclass(frozen=True)
class RecordedCall:
    """The arguments of one call of ``forward``, by name: trees of ``SeenTensor`` and ``Constant``."""

    arguments: Mapping[str, object]
    keywords: frozenset[str]
    """Those that are passed by keyword."""


def call_of(module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> RecordedCall:
    """Return what a call has to be given again, without arguments as their default.

    Raises Stopped for an argument that a case cannot say.
    """
    signature = inspect.signature(module.forward)
    bound = signature.bind(*args, **kwargs)
    arguments: dict[str, object] = {}
    by_name = set(kwargs)
    left_out = False
    for name, value in bound.arguments.items():
        parameter = signature.parameters[name]
        if parameter.kind is parameter.VAR_KEYWORD:
            arguments |= {inner: read_value(inner, part) for inner, part in value.items()}
        elif parameter.kind is parameter.VAR_POSITIONAL:
            arguments |= {f"{name}_{index}": read_value(f"{name}_{index}", part) for index, part in enumerate(value)}
        elif is_plain(value) and is_plain(parameter.default) and value == parameter.default:
            left_out = True
        else:
            arguments[name] = read_value(name, value)
            by_name |= {name} if left_out else set()
    return RecordedCall(arguments, frozenset(by_name & arguments.keys()))


def is_plain(value: object) -> bool:
    """Return whether a value stands in YAML as it is."""
    return value is None or isinstance(value, (bool, int, float, str))


def read_value(name: str, value: Any) -> object:
    """Return an argument as a tree of ``SeenTensor`` and ``Constant``. Raises Stopped for what a case cannot say."""
    import torch

    if type(value) in (torch.Tensor, torch.nn.Parameter):
        return _tensor(name, value)
    if is_plain(value):
        return Constant(value)
    if type(value) in (list, tuple):
        return type(value)(read_value(f"{name}.{index}", part) for index, part in enumerate(value))
    if type(value) is dict and all(isinstance(key, str) for key in value):
        return {key: read_value(f"{name}.{key}", part) for key, part in value.items()}
    kind = type(value).__name__
    raise no_input(f"{name} is a {kind}, which a case says by hand, as {{new: package.Class, with: ...}}")


def _tensor(name: str, value: Tensor) -> SeenTensor:
    import torch

    kinds = {
        "quantized": value.is_quantized, "complex": value.is_complex(), "nested": value.is_nested,
        "sparse": value.layout != torch.strided, "meta": value.is_meta,
    }  # fmt: skip
    odd = next((kind for kind, is_one in kinds.items() if is_one), None)
    if odd is not None:
        raise no_input(f"{name} is a {odd} tensor, which a case cannot say")
    dtype = str(value.dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        raise no_input(f"{name} is of {dtype}, which a case of a module cannot say; of {', '.join(DTYPES)} it can")
    numbers = value.detach().to("cpu")
    levels: tuple[float, ...] = ()
    low = high = 0.0
    if numbers.numel():
        wide = numbers.to(torch.float64) if numbers.is_floating_point() else numbers
        low, high = wide.min().item(), wide.max().item()
        if numbers.is_floating_point() and numbers.numel() > 2:
            distinct = wide.unique()
            levels = tuple(distinct.tolist()) if len(distinct) <= 2 else ()
    return SeenTensor(dtype, tuple(value.shape), low, high, levels)


# ---- types -----------------------------------------------------------------------------------------------------


def _skeleton(tree: Any) -> object:
    """Return what is equal for arguments that one type can say."""
    if isinstance(tree, SeenTensor):
        return tree.dtype, len(tree.sizes)
    if isinstance(tree, Constant):
        return repr(tree.value)
    if isinstance(tree, Mapping):
        return tuple((name, _skeleton(inner)) for name, inner in tree.items())
    return (type(tree).__name__, *map(_skeleton, tree))


@dataclass
class _Dims:
    """Names of dims by the sizes that they had in each call."""

    given: Mapping[str, tuple[int, ...]]
    open: int
    """The number of first axes that may be dims, as is tried later, if their size was the same in all calls."""
    sizes: dict[str, int] = field(default_factory=dict)
    """The size of each dim in the first call."""
    _names: dict[object, str] = field(default_factory=dict)

    def name(self, sizes: tuple[int, ...], axis: int, axes: int) -> str:
        """A number or the name of a dim: sizes that are the same in all calls are the same dim. The first axis is
        told apart from others of its size, since a batch is often as large as something else."""
        same = len(set(sizes)) == 1
        if same and (axis >= self.open or sizes[0] < 1):
            return str(sizes[0])
        key = (sizes, axis == 0) if same else sizes
        if key not in self._names:
            name = next((name for name, seen in self.given.items() if seen == sizes and not same), None)
            self._names[key] = name or self._new(axis, axes)
            self.sizes[self._names[key]] = sizes[0]
        return self._names[key]

    def _new(self, axis: int, axes: int) -> str:
        wanted = "batch" if axis == 0 else "hw"[axis - 2] if axes == 4 and axis >= 2 else "seq" if axis == 1 else "n"
        taken = {*self.given, *self._names.values()}
        numbers = (f"{wanted}{number}" for number in range(2, 10_000))
        return wanted if wanted not in taken else next(name for name in numbers if name not in taken)


def types_of(
    calls: Sequence[RecordedCall],
    rows: Sequence[int],
    given: Mapping[str, tuple[int, ...]] | None = None,
    axes: int = AXES,
) -> tuple[dict[str, Tree], dict[str, int]]:
    """Return the inputs that the calls show, and the size of each dim in the first of them.

    Args:
        calls: of one module; those that are built unlike the first do not count.
        rows: of the tables of the module, which indices look up.
        given: the sizes of known dims in each call. Then what did not differ between the calls is no dim; without it
            every size may be one, of the first ``axes`` of each tensor.
    """
    first = calls[0]
    alike = [_skeleton(call.arguments) == _skeleton(first.arguments) for call in calls]
    given = {name: tuple(size for size, same in zip(sizes, alike, strict=True) if same)
             for name, sizes in (given or {}).items()}  # fmt: skip
    used = [call for call, same in zip(calls, alike, strict=True) if same]
    dims = _Dims(given, open=0 if given else axes)
    inputs = {name: _typed([call.arguments[name] for call in used], dims, rows, name) for name in first.arguments}
    return inputs, dims.sizes


def _typed(trees: Sequence[Any], dims: _Dims, rows: Sequence[int], name: str) -> Tree:
    first = trees[0]
    if isinstance(first, Constant):
        return first
    if isinstance(first, Mapping):
        return {key: _typed([tree[key] for tree in trees], dims, rows, key) for key in first}
    if not isinstance(first, SeenTensor):
        parts = [_typed(list(inner), dims, rows, name) for inner in zip(*trees, strict=True)]
        return tuple(parts) if isinstance(first, tuple) else parts
    axes = len(first.sizes)
    sizes = zip(*(tree.sizes for tree in trees), strict=True)
    shape = ", ".join(dims.name(tuple(along), axis, axes) for axis, along in enumerate(sizes))
    values, why = _values(trees, rows, name)
    return Guess(f"{first.dtype}[{shape}]", why=why, values=values, open=why == AS_SEEN)


def _values(tensors: Sequence[SeenTensor], rows: Sequence[int], name: str) -> tuple[dict[str, Any] | None, str]:
    """Find where the values of a tensor come from, by those that were seen.

    Also what follows from that.
    """
    low, high = min(tensor.low for tensor in tensors), max(tensor.high for tensor in tensors)
    dtype = tensors[0].dtype
    if dtype == "bool" and "mask" in name:
        return padding_of(name), PADDING
    if dtype == "bool":
        return None, "drawn at random: whole rows of False are among it"
    if "float" not in dtype:
        if "mask" in name and 0 <= low <= high <= 1:
            return padding_of(name), PADDING
        table = next((count for count in rows if low >= 0 and 1 < high < count), None)
        if table is not None:
            return {"integers": {"low": 0, "high": table - 1}}, f"indices into a table of {table:,} rows"
        return {"integers": {"low": int(low), "high": int(high)}}, AS_SEEN
    levels = sorted({level for tensor in tensors for level in tensor.levels})
    if all(tensor.levels for tensor in tensors) and len(levels) == 2 and "mask" in name and levels[0] <= HIDES:
        return padding_of("", levels), PADDING
    if all(tensor.levels for tensor in tensors) and len(levels) == 2:
        return {"choice": levels}, "the only values in the calls"
    if low >= 0 and 0 < high < math.inf:
        return {"uniform": {"low": 0.0, "high": high}}, "no negative number was seen"
    return None, ""
