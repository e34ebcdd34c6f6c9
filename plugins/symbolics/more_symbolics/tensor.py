"""Write ONNX nodes as arithmetic: a value of the graph that is exported, and the decorator that makes symbolics.

A symbolic is a function of ``Tensor`` and of plain numbers, lists and texts. Its annotations say which is which, as
``parse_args`` of torch.onnx would be told by letters.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias, Union

import torch
from torch.onnx import symbolic_helper as helper
from torch.onnx._internal.torchscript_exporter import registration
from torch.onnx._internal.torchscript_exporter._type_utils import JitScalarType

LEAST, ALL = 9, 2**63 - 1
"""The least opset that is claimed, and an end of slices that takes all."""
Value: TypeAlias = Any
"""A value of the graph as the exporter has it, which a symbolic looks into or passes on."""
Size: TypeAlias = Union[int, "Tensor"]
"""A number that is known, or a whole number of the graph in a tensor of no or one dim."""
Sizes: TypeAlias = Union[Sequence[Size], "Tensor"]


class Tensor:
    """A value of the graph, with PyTorch's names for what is done with it; each adds nodes to the graph."""

    def __init__(self, graph: Any, value: Any) -> None:
        self.graph, self.value = graph, value

    # ---- what is known of it -----------------------------------------------------------------------------------

    @property
    def dtype(self) -> torch.dtype:
        return JitScalarType.from_value(self.value).dtype()

    @property
    def is_floating(self) -> bool:
        return self.dtype.is_floating_point

    @property
    def is_narrow(self) -> bool:
        """True of integers that few runtimes have sums of."""
        return not self.is_floating and self.dtype not in (torch.int32, torch.int64)

    @property
    def rank(self) -> int:
        """Return the number of dims. Raises SymbolicValueError where the exporter does not know it."""
        rank = helper._get_tensor_rank(self.value)
        if rank is None:
            helper._unimplemented("a symbolic", "rank of an input is not known", self.value)
        return rank

    def fixed_size(self, axis: int) -> int | None:
        """Return a size where the graph fixes it; None where it is only known to each run."""
        return helper._get_tensor_dim_size(self.value, axis)

    def axis(self, axis: int) -> int:
        """Return the number of an axis from the front."""
        return axis % max(self.rank, 1)

    def axes(self) -> list[int]:
        return list(range(self.rank))

    # ---- nodes -------------------------------------------------------------------------------------------------

    def op(self, name: str, *others: object, **attributes: object) -> Tensor:
        """Add a node whose first input this is; numbers among the others become constants of its dtype."""
        values = [self.like(other).value for other in others]
        return Tensor(self.graph, self.graph.op(name, self.value, *values, **attributes))

    def aten(self, name: str, *arguments: object) -> Tensor:
        """Add what the exporter itself writes for one of PyTorch's operators at this opset."""
        symbolic = registration.registry.get_function_group(f"aten::{name}").get(self.graph.opset)
        given = [one.value if isinstance(one, Tensor) else one for one in arguments]
        return Tensor(self.graph, symbolic(self.graph, self.value, *given))

    def like(self, other: object) -> Tensor:
        """Return a number as a constant of this dtype, infinity as the largest of integers; tensors as they are."""
        if isinstance(other, Tensor):
            return other
        if isinstance(other, float) and not (math.isfinite(other) or self.is_floating):
            bounds = torch.iinfo(torch.uint8 if self.dtype == torch.bool else self.dtype)
            other = 0 if math.isnan(other) else bounds.max if other > 0 else bounds.min
        return self.constant(other, self.dtype)

    def constant(self, number: object, dtype: torch.dtype = torch.int64) -> Tensor:
        return Tensor(self.graph, self.graph.op("Constant", value_t=torch.tensor(number, dtype=dtype)))

    def to(self, dtype: torch.dtype) -> Tensor:
        kind = JitScalarType.from_dtype(dtype).onnx_type()
        return self if self.dtype == dtype else self.op("Cast", to_i=kind)

    # ---- arithmetic --------------------------------------------------------------------------------------------

    def __add__(self, other: object) -> Tensor:
        return self.op("Or" if self.dtype == torch.bool else "Add", other)

    def __sub__(self, other: object) -> Tensor:
        return self.op("Sub", other)

    def __rsub__(self, other: object) -> Tensor:
        return self.like(other).op("Sub", self)

    def __mul__(self, other: object) -> Tensor:
        return self.op("And" if self.dtype == torch.bool else "Mul", other)

    def __truediv__(self, other: object) -> Tensor:
        return self.op("Div", other)

    def __rtruediv__(self, other: object) -> Tensor:
        return self.like(other).op("Div", self)

    def __pow__(self, other: object) -> Tensor:
        return self.op("Pow", other)

    def __neg__(self) -> Tensor:
        return self.op("Neg")

    def __matmul__(self, other: Tensor) -> Tensor:
        if self.is_narrow:
            return (self.to(torch.int64) @ other.to(torch.int64)).to(self.dtype)
        return self.op("MatMul", other)

    def __and__(self, other: Tensor) -> Tensor:
        return self.op("And", other)

    def __or__(self, other: Tensor) -> Tensor:
        return self.op("Or", other)

    def __invert__(self) -> Tensor:
        return self.op("Not")

    def __lt__(self, other: object) -> Tensor:
        return self.op("Less", other)

    def __gt__(self, other: object) -> Tensor:
        return self.op("Greater", other)

    def equals(self, other: object) -> Tensor:
        """Return where both are equal; Equal takes floats since opset 11."""
        if self.graph.opset >= 11 or not self.is_floating:
            return self.op("Equal", other)
        number = self.like(other)
        return ~((self < number) | (self > number) | self.isnan() | number.isnan())

    def at_most(self, other: object) -> Tensor:
        return (self < other) | self.equals(other)

    def abs(self) -> Tensor:
        return self.op("Abs")

    def exp(self) -> Tensor:
        return self.op("Exp")

    def log(self) -> Tensor:
        return self.op("Log")

    def sqrt(self) -> Tensor:
        return self.op("Sqrt")

    def isnan(self) -> Tensor:
        return self.op("IsNaN") if self.is_floating else self.equals(self).op("Not")

    def isinf(self) -> Tensor:
        return self.abs().equals(float("inf"))

    def largest_of(self, other: object) -> Tensor:
        """Return the larger of two; NaN where either is NaN, which Max of runtimes may lose."""
        number = self.like(other)
        return where((self > number) | self.isnan(), self, number)

    def least_of(self, other: object) -> Tensor:
        number = self.like(other)
        return where((self < number) | self.isnan(), self, number)

    # ---- along axes --------------------------------------------------------------------------------------------

    def reduce(self, name: str, axes: Sequence[int] | None = None, keep: bool = False) -> Tensor:
        """Reduce over axes, or over all; since opset 18 they are an input, of ReduceSum since 13."""
        axes = self.axes() if axes is None else [self.axis(axis) for axis in axes]
        if not axes or not self.rank:
            return self.op("Identity")
        if self.is_narrow:
            return self.to(torch.int64).reduce(name, axes, keep).to(self.dtype)
        if self.graph.opset >= (13 if name == "ReduceSum" else 18):
            return self.op(name, self.constant(axes), keepdims_i=int(keep))
        return self.op(name, axes_i=axes, keepdims_i=int(keep))

    def sum(self, axes: Sequence[int] | None = None, keep: bool = False) -> Tensor:
        return self.reduce("ReduceSum", axes, keep)

    def mean(self, axes: Sequence[int] | None = None, keep: bool = False) -> Tensor:
        return self.reduce("ReduceMean", axes, keep)

    def any(self, axes: Sequence[int] | None = None, keep: bool = False) -> Tensor:
        return self.to(torch.int32).reduce("ReduceMax", axes, keep) > 0

    def count(self, axes: Sequence[int] | None = None, keep: bool = False) -> Tensor:
        """Return how many are true, as int64."""
        return self.to(torch.int64).sum(axes, keep)

    def ascending(self, axis: int) -> Tensor:
        """Return the values along an axis in ascending order."""
        size, axis = self.size(axis), self.axis(axis)
        values, _ = self.graph.op("TopK", self.value, size.value, axis_i=axis, largest_i=0, outputs=2)
        return Tensor(self.graph, values)

    # ---- shapes ------------------------------------------------------------------------------------------------

    def shape(self) -> Tensor:
        return self.op("Shape")

    def size(self, axis: int) -> Tensor:
        """Return a size as a tensor of one number."""
        return self.shape().take([self.axis(axis)], 0)

    def as_sizes(self, sizes: Sizes) -> Tensor:
        """Return whole numbers side by side, those of the graph among them."""
        if isinstance(sizes, Tensor):
            return sizes
        if all(isinstance(size, int) for size in sizes):
            return self.constant(list(sizes))
        parts = [self.constant([one]) if isinstance(one, int) else one.reshape([-1]) for one in sizes]
        return joined(parts, 0)

    def reshape(self, sizes: Sizes) -> Tensor:
        return self.op("Reshape", self.as_sizes(sizes))

    def flatten(self) -> Tensor:
        return self.reshape([-1])

    def expand(self, sizes: Sizes) -> Tensor:
        return self.op("Expand", self.as_sizes(sizes))

    def expand_to(self, other: Tensor) -> Tensor:
        return self.expand(other.shape())

    def permute(self, axes: Sequence[int]) -> Tensor:
        axes = [self.axis(axis) for axis in axes]
        return self.op("Transpose", perm_i=axes) if axes else self.op("Identity")

    def transpose(self, one: int, other: int) -> Tensor:
        axes, one, other = self.axes(), self.axis(one), self.axis(other)
        if axes:
            axes[one], axes[other] = axes[other], axes[one]
        return self.permute(axes)

    def to_end(self, *axes: int) -> Tensor:
        """Return it with these axes as the last ones, in this order."""
        moved = [self.axis(axis) for axis in axes]
        return self.permute([axis for axis in self.axes() if axis not in moved] + moved)

    def from_end(self, *axes: int) -> Tensor:
        """Return it with its last axes at these places: the reverse of ``to_end``."""
        places = [self.axis(axis) for axis in axes]
        order = [axis for axis in self.axes() if axis not in places] + places
        return self.permute([order.index(axis) for axis in self.axes()])

    def unsqueeze(self, *axes: int) -> Tensor:
        """Add axes of size 1, counted in what results."""
        return Tensor(self.graph, helper._unsqueeze_helper(self.graph, self.value, list(axes)))

    def squeeze(self, *axes: int) -> Tensor:
        return Tensor(self.graph, helper._squeeze_helper(self.graph, self.value, list(axes)))

    def at_least(self, rank: int) -> Tensor:
        """Return it with axes of size 1 in front, or as it is."""
        missing = rank - self.rank
        return self.unsqueeze(*range(missing)) if missing > 0 else self

    def take(self, places: object, axis: int) -> Tensor:
        """Return what stands at these places along an axis: a number takes the axis away."""
        index = places if isinstance(places, Tensor) else self.constant(places)
        return self.op("Gather", index, axis_i=self.axis(axis))

    def slice(self, axis: int, start: Size, end: Size = ALL, step: int = 1) -> Tensor:
        axis = self.axis(axis)
        if isinstance(start, int) and isinstance(end, int) and step == 1:
            sliced = helper._slice_helper(self.graph, self.value, axes=[axis], starts=[start], ends=[end])
            return Tensor(self.graph, sliced)
        ends = [self.as_sizes([number]) for number in (start, end)]
        return self.op("Slice", *ends, self.constant([axis]), self.constant([step]))

    def numbered(self, axis: int) -> Tensor:
        """Return 0, 1, ... along an axis of this size, as int64 of one dim."""
        zero, one = self.constant(0), self.constant(1)
        return zero.op("Range", self.size(axis).squeeze(0), one)


class Symbolic(NamedTuple):
    """A symbolic function, and the least opset whose operators it needs."""

    function: Callable[..., Any]
    least: int


KINDS = {"int": "i", "float": "f", "bool": "b", "str": "s", "list[int]": "is"}
"""Names that ``parse_args`` has for Python's types; all others are values of the graph."""
SYMBOLICS: dict[str, Symbolic] = {}
"""All symbolics, by the operators that they are of: ``aten::asinh``."""


def symbolic(least: int = LEAST) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a symbolic of the operator of a function's name, for opsets from ``least`` on."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        parameters = [*inspect.signature(function).parameters.values()]
        kinds = [str(one.annotation).removesuffix(" | None") for one in parameters]

        def called(graph: Any, *values: Any) -> Any:
            given = [_given(graph, kind, value) for kind, value in zip(kinds, values, strict=False)]
            return _returned(function(*given), graph)

        graph = inspect.Parameter("g", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        vars(called).update(__signature__=inspect.Signature([graph, *parameters]), __doc__=function.__doc__)
        called.__name__ = called.__qualname__ = function.__name__
        called.__module__ = function.__module__
        made = helper.parse_args(*(KINDS.get(kind, "v") for kind in kinds))(called)
        SYMBOLICS[f"aten::{function.__name__}"] = Symbolic(made, least)
        return made

    return decorate


def _given(graph: Any, kind: str, value: Any) -> Any:
    if kind in KINDS:
        return value
    if helper._is_none(value):
        return None
    if kind == "list[Tensor]":
        return [Tensor(graph, one) for one in helper._unpack_list(value)]
    return value if kind == "Value" else Tensor(graph, value)


def _returned(result: Any, graph: Any) -> Any:
    """Return the values of a result: a list of tensors is one value, a tuple is several."""
    if isinstance(result, list):
        return graph.op("prim::ListConstruct", *(one.value for one in result))
    return tuple(one.value for one in result) if isinstance(result, tuple) else result.value


def result_dtype(*tensors: Tensor) -> torch.dtype:
    """Return the dtype that PyTorch gives the result, which the trace knows."""
    graph = tensors[0].graph
    known = JitScalarType.from_value(graph.original_node.outputsAt(0), JitScalarType.UNDEFINED)
    if known == JitScalarType.UNDEFINED:
        known = helper._type_promote_from_values(*(one.value for one in tensors))
    return known.dtype()


def promoted(*tensors: Tensor) -> list[Tensor]:
    """Return tensors in the dtype of the result."""
    dtype = result_dtype(*tensors)
    return [one.to(dtype) for one in tensors]


def where(condition: Tensor, one: object, other: object) -> Tensor:
    """Choose between two, of which one may be a number."""
    known = one if isinstance(one, Tensor) else other
    assert isinstance(known, Tensor)
    if known.dtype == torch.bool:  # for which ONNX Runtime has no Where
        return (condition & known.like(one)) | (~condition & known.like(other))
    return condition.op("Where", known.like(one), known.like(other))


def joined(tensors: Sequence[Tensor], axis: int) -> Tensor:
    """Concatenate tensors along an axis."""
    return tensors[0].op("Concat", *tensors[1:], axis_i=axis)


def constant_of(value: Value) -> Any:
    """Return a number or a list of them. Raises SymbolicValueError where it is only known to each run."""
    found = next((one for kind in ("t", "is", "fs") if _is_known(one := helper._maybe_get_const(value, kind))), None)
    if found is None:
        helper._unimplemented("a symbolic", "an argument must be constant", value)
    return found.tolist() if isinstance(found, torch.Tensor) else found


def _is_known(value: object) -> bool:
    return not isinstance(value, torch._C.Value)


def sizes_of(x: Tensor, value: Value) -> Tensor:
    """Return sizes that are constant, or of the graph in a list or a tensor, as a tensor of one dim."""
    if helper._is_packed_list(value):
        parts = [Tensor(x.graph, one).to(torch.int64).reshape([-1]) for one in helper._unpack_list(value)]
        return joined(parts, 0)
    return Tensor(x.graph, value).to(torch.int64)


def fixed_size_of(x: Tensor, axis: int) -> int:
    """Return a size that the graph fixes. Raises SymbolicValueError where it is only known to each run."""
    size = x.fixed_size(x.axis(axis))
    if size is None:
        helper._unimplemented("a symbolic", "a size that says how much the result has must be fixed", x.value)
    return size
