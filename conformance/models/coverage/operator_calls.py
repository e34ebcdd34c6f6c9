"""The operator calls of one run of a module: which can be disturbed, and where each stands in the user's code.

A call is what PyTorch's dispatcher runs, below autograd. It counts if it computes floating-point values that an
output depends on. Left out are:

- views and copies, which compute no values: what is wrong there is wrong in what they look at;
- constants: calls without a tensor among their arguments, or that take only shape and dtype from one;
- calls whose results are integers or booleans, of which there is no tenth: sizes, indices, masks;
- calls of whose floating-point results no output depends on one by way of tensors: checks of arguments, numbers that
  Python decides by, the values of a ``topk`` of which only the indices are used.
"""

from __future__ import annotations

import contextlib
import sys
import sysconfig
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from conformance import HOME
from conformance.models.reference.dispatch import Arguments, Keywords, Operator, OperatorCalls
from conformance.process.errors import display_path, or_else

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class CallSite:
    """One operator call of a module, which is the same in runs on other values."""

    module: str
    """The path of the submodule that calls the operator, as in ``named_modules``; empty for the module itself."""
    at: str | None
    """File and line of the innermost frame of Python outside of PyTorch; None where there is none."""
    op: str
    """As ``aten.convolution``."""
    number: int
    """How many calls of the same operator at the same place came before."""


@dataclass
class CallsOfRun:
    """The operator calls of one run of a module."""

    ops: list[str] = field(default_factory=list)
    """All calls in their order, also those that do not count."""
    sites: dict[CallSite, int] = field(default_factory=dict)
    """The calls that count, each with its index in ``ops``."""
    deciding: set[CallSite] = field(default_factory=set)
    """Those on which outputs depend only by way of integers and booleans, as on a score that is compared with a
    limit. A tenth more or less of it may rightly change nothing."""
    idle: set[CallSite] = field(default_factory=set)
    """Those whose result is what they were given, as of a ``relu`` of positive numbers: left out they would not be
    missed."""
    flops: int = 0
    """Floating-point operations of the matrix products, convolutions and attentions."""
    values: int = 0
    """How many values all results have together."""
    products: dict[int, Tensor] = field(default_factory=dict)
    """The results of the costliest calls by their index in ``ops``, as far as there is room (``PRODUCTS``): a run
    that is like this one up to some call need not compute them."""


FEW = 10**6
"""Floating-point operations up to which a call costs little more than any other. They are not counted, since torch's
formulas import triton, which takes as long as the cells of a small case."""
MOST_FLOPS = 4
"""The operations for each pair of a given and a computed value are at most so many, in a product, a convolution or,
with its two products, attention."""
COSTLY = 10**7
"""Floating-point operations from which on a call costs more than copying its result."""
PRODUCTS = 2**28
"""The bytes of results that are kept of one run."""
_UNCHANGED = {
    "aten.clone", "aten.copy_", "aten._to_copy", "aten.contiguous", "aten.lift_fresh", "aten.lift_fresh_copy",
    "aten.lift", "aten.detach", "aten.detach_", "aten.alias", "aten.alias_copy", "aten.view_copy",
    "aten._unsafe_view", "aten._reshape_copy", "aten._conj_physical", "aten.resolve_conj", "aten.resolve_neg",
}  # fmt: skip
"""Operators whose result has the values of an argument, perhaps in another dtype or memory."""
_CONSTANT = {"aten.fill", "aten.fill_", "aten.zero", "aten.zero_", "aten.resize_", "aten.set_"}
"""Operators whose result depends on no value of a tensor, besides those that are named as ``_of_shape`` says."""


def _of_shape(op: str) -> bool:
    """Return whether an operator takes only the shape and dtype of its tensor, as ``zeros_like`` and ``new_ones``
    do."""
    name = op.partition(".")[2]
    return name.endswith("_like") or name.startswith("new_")


def computes(func: Operator, op: str, results: list[Tensor], has_tensors: bool, aliases: bool) -> bool:
    """Return whether a call computes floating-point values of its tensors; ``aliases`` is whether it gives memory
    that was there before."""
    if not has_tensors or hands_on(func) or op in _CONSTANT or _of_shape(op):
        return False
    return bool(disturbable(results)) and (not aliases or _writes(func))


def hands_on(func: Operator) -> bool:
    """Return whether the results of a call have the values of an argument: a view, or a copy."""
    return bool(getattr(func, "is_view", False)) or name_of(func) in _UNCHANGED


def _writes(func: Operator) -> bool:
    """Return whether an operator writes to its arguments."""
    return bool(hasattr(func, "_schema") and func._schema.is_mutable)


def _is_one_of(results: list[Tensor], tensors: list[Tensor]) -> bool:
    """Return whether the one result of a call has the values of one of these tensors."""
    import torch

    if len(results) != 1:
        return False
    (result,) = results
    alike = (tensor for tensor in tensors if (tensor.shape, tensor.dtype) == (result.shape, result.dtype))
    return any(torch.equal(tensor, result) for tensor in alike)


def disturbable(results: list[Tensor]) -> list[Tensor]:
    """Return the tensors among the results of a call that can be disturbed in place."""
    import torch

    return [
        result
        for result in results
        if (result.is_floating_point() or result.is_complex())
        and result.layout == torch.strided
        and result.device.type == "cpu"
        and result.numel()
        and torch._debug_has_internal_overlap(result) != 1
    ]


def tensors_of(value: object) -> list[Tensor]:
    """Return the tensors in arguments or results of a call, depth first."""
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for part in value for tensor in tensors_of(part)]
    if isinstance(value, dict):
        return [tensor for part in value.values() for tensor in tensors_of(part)]
    return []


def returned_by(result: object) -> list[Tensor]:
    """Return the tensors that a module returned, depth first."""
    from torch.utils import _pytree

    return tensors_of(_pytree.tree_leaves(result))


@cache
def name_of(func: Operator) -> str:
    """``aten.add`` of an overload such as ``aten.add.Tensor``; ``cond`` of a higher-order operator, which is one call
    with all that it calls."""
    return str(func).rpartition(".")[0] or str(func)


@contextlib.contextmanager
def recording(module: nn.Module, apart: Collection[int] = ()) -> Iterator[CallsOfRun]:
    """Inside the block the call of the module is recorded; the run is complete after it. Outputs with the numbers in
    ``apart``, depth first, are none that a call could count for."""
    from torch.nn.modules import module as hooks

    run, where = CallsOfRun(), _Where(module, apart)
    before = hooks.register_module_forward_pre_hook(where.enter)
    after = hooks.register_module_forward_hook(where.leave)
    mode = _Records(where)
    try:
        with mode:
            yield run
    finally:
        before.remove()
        after.remove()
        run.ops, run.flops, run.values, run.products = mode.ops, mode.flops, mode.values, mode.products
        run.sites, run.deciding = mode.counted()
        run.idle = mode.idle & run.sites.keys()


class _Where:
    """The submodule that is running, and what the module itself returned."""

    def __init__(self, module: nn.Module, apart: Collection[int]) -> None:
        self._root, self._apart = module, apart
        self._names = {id(submodule): name for name, submodule in module.named_modules()}
        self._open: list[nn.Module] = []
        self.returned: list[Tensor] = []

    @property
    def path(self) -> str:
        return self._names[id(self._open[-1])] if self._open else ""

    def enter(self, module: nn.Module, inputs: object) -> None:
        if id(module) in self._names:
            self._open.append(module)

    def leave(self, module: nn.Module, inputs: object, result: object) -> None:
        if id(module) not in self._names:
            return
        while self._open and self._open.pop() is not module:  # a call that raised, which somebody caught
            pass
        if module is self._root:
            self.returned = [leaf for number, leaf in enumerate(returned_by(result)) if number not in self._apart]


class _Records(OperatorCalls):
    """Notes the calls of a run, and which of them each memory depends on."""

    higher_order = True

    def __init__(self, where: _Where) -> None:
        super().__init__()
        self.ops: list[str] = []
        self.flops = self.values = 0
        self._where = where
        self._counting: list[tuple[CallSite, int]] = []
        self._numbers: Counter[tuple[str, str | None, str]] = Counter()
        self._flow: dict[int, Flow] = {}
        """By the address of a storage."""
        self.products: dict[int, Tensor] = {}
        self.idle: set[CallSite] = set()
        self._room = PRODUCTS

    def call(self, func: Operator, args: Arguments, kwargs: Keywords) -> object:
        import torch

        tensors = tensors_of((args, kwargs))
        held = {address(tensor) for tensor in tensors} - {NOWHERE}
        any_, direct = _joined(self._flow.get(place, (0, 0)) for place in held)
        own = 0
        before = [tensor.clone() for tensor in tensors[:1]] if _writes(func) else tensors
        result = func(*args, **kwargs)
        op, results = name_of(func), tensors_of(result)
        if computes(func, op, results, bool(tensors), any(address(tensor) in held for tensor in results)):
            site = self._where.path, line_of_call(), op
            own = 1 << len(self._counting)
            self._counting.append((CallSite(*site, self._numbers[site]), len(self.ops)))
            self._numbers[site] += 1
            if _is_one_of(results, before):
                self.idle.add(self._counting[-1][0])
        computed = {id(tensor) for tensor in disturbable(results)} if own else ()
        for tensor in results:
            place = address(tensor)
            if place == NOWHERE:
                continue
            # memory that is new may be that of a tensor which is gone
            there = self._flow.get(place, (0, 0)) if place in held else (0, 0)
            bit = own if id(tensor) in computed else 0
            continues = tensor.is_floating_point() or tensor.is_complex()
            self._flow[place] = _joined([(any_ | bit, direct | bit if continues else 0), there])
        most = MOST_FLOPS * _values(tensors) * _values(results)
        flops = _flops(func, args, kwargs, result) if most > FEW else 0
        fits = isinstance(result, torch.Tensor) and result.nbytes <= self._room
        if flops >= COSTLY and fits and not func._schema.is_mutable:
            self.products[len(self.ops)] = result.clone()  # others may write to the result itself
            self._room -= result.nbytes
        self.ops.append(op)
        self.flops += flops
        self.values += _values(results)
        return result

    def counted(self) -> tuple[dict[CallSite, int], set[CallSite]]:
        """Return the calls that an output depends on, and those of them that only decide."""
        returned = {address(tensor) for tensor in self._where.returned}
        any_, direct = _joined(self._flow.get(place, (0, 0)) for place in returned)
        sites = {site: index for bit, (site, index) in enumerate(self._counting) if any_ >> bit & 1}
        return sites, {site for bit, (site, _) in enumerate(self._counting) if (any_ & ~direct) >> bit & 1}


def _values(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors)


def _flops(func: Operator, args: Arguments, kwargs: Keywords, result: object) -> int:
    """Return the floating-point operations of a matrix product, convolution or attention; 0 of other calls."""
    from torch.utils.flop_counter import flop_registry

    formula = flop_registry.get(getattr(func, "_overloadpacket", None))
    # where the formula is for other arguments: a guess at the cost is enough
    return 0 if formula is None else or_else(0, lambda: int(formula(*args, **kwargs, out_val=result)))


Flow = tuple[int, int]
"""Which calls some values depend on in any way, and on which by floating-point values alone: bits of numbers."""


def _joined(flows: Iterable[Flow]) -> Flow:
    any_ = direct = 0
    for one, other in flows:
        any_, direct = any_ | one, direct | other
    return any_, direct


NOWHERE = 0


def address(tensor: Tensor) -> int:
    """Return the address of a tensor's memory; ``NOWHERE`` for one without any, such as an empty or sparse one."""
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):
        return NOWHERE


def line_of_call() -> str | None:
    """Return file and line of the innermost frame that is neither PyTorch's nor this package's."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        shown = _shown(frame.f_code.co_filename)
        if shown is not None:
            return f"{shown}:{frame.f_lineno}"
        frame = frame.f_back
    return None


@cache
def _shown(file: str) -> str | None:
    """Return a file as it is shown, an installed one from its package on; None for PyTorch's and this package's."""
    import torch

    path = Path(file)
    if path.is_relative_to(Path(torch.__file__).parent) or path.is_relative_to(HOME):
        return None
    for name in ("purelib", "platlib"):
        folder = Path(sysconfig.get_path(name))
        if path.is_relative_to(folder):
            return path.relative_to(folder).as_posix()
    if path.is_relative_to(sysconfig.get_path("stdlib")) or file.startswith("<frozen"):
        return None
    return file if file.startswith("<") else display_path(path)
