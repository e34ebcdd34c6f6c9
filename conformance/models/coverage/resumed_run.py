"""A recorded run of a module, played from one of its calls on: what the outputs are if it gives something else.

To run a module again for each of its calls takes long: what comes before the call is computed in vain, and its own
Python and PyTorch's take longer than many an operator. A ``Tape`` has the calls of one run with what they read and
wrote. From a call on it makes the calls that follow, on memory that is as it was there.

Python may decide by what was computed, and then make other calls. It sees of a tensor its shape and what an operator
gives as a number; ``item`` and ``bool`` are such operators. A tape that meets another shape or number than the
recorded run did says so (``OffTape``), and the module has to be run. Of a run in which Python read a tensor in
another way, as by ``numpy`` or ``tolist``, there is no tape.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from conformance.models.coverage.operator_calls import CallsOfRun, name_of, returned_by, tensors_of
from conformance.models.reference.dispatch import Arguments, FunctionCalls, Keywords, Operator, OperatorCalls
from conformance.process.arrays import Array, same
from conformance.process.errors import attempt, or_else

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


class OffTape(Exception):
    """A call raised, or gave another shape or number than in the recorded run. ``products`` are the results of the
    costly calls before it, which the module would make too."""

    def __init__(self, products: dict[int, Tensor] | None = None) -> None:
        super().__init__()
        self.products = products or {}


class _Unplayable(Exception):
    """The run cannot be played, as one with sparse tensors."""


@dataclass(frozen=True)
class _Place:
    """The place of a tensor in memory."""

    storage: int
    """The number of its memory, in the order in which the run met it."""
    whole: bool
    """Whether it is the tensor that the memory was first met in, or looks like it."""
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype


@dataclass
class _ResumedCall:
    """One call. Views are none: they compute nothing, and what reads one says where it lies."""

    func: Operator
    args: Arguments
    kwargs: Keywords
    """Arguments, with a ``_Place`` for each tensor."""
    writes: tuple[int, ...]
    """The memory of arguments that it writes to."""
    makes: tuple[int | None, ...]
    """The memory of each result; None where that was there before."""
    shapes: tuple[tuple[int, ...], ...]
    numbers: str
    """What it gave besides tensors."""
    frees: tuple[int, ...] = ()
    """The memory that no later call needs."""


Memory = dict[int, "Tensor"]
"""The tensor that each memory was first met in, or a copy of it, by number."""


class Tape:
    """The calls of one run. ``after`` plays them; calls are best asked for in their order, since what comes before
    one is played once for all that follow."""

    def __init__(
        self, steps: list[_ResumedCall | None], given: Memory, outputs: list[_Place], costly: Collection[int]
    ) -> None:
        """``given`` is what no call made, such as parameters and inputs; ``costly`` are the numbers of calls."""
        self._steps, self._given, self._outputs, self._costly = steps, given, outputs, costly
        _set_frees(steps, outputs)
        self._position, self._memory, self._own = 0, dict(given), set[int]()

    def after(self, index: int, change: Callable[[list[Tensor]], None]) -> list[Array]:
        """The outputs where ``change`` has changed, in place, what the call with this index gave. Raises OffTape."""
        import torch

        with torch.no_grad():
            self._wind(index)
            memory, own, products = dict(self._memory), set[int](), dict[int, "Tensor"]()
            for number in range(index, len(self._steps)):
                step = self._steps[number]
                if step is not None:
                    try:
                        results = self._play(step, memory, own)
                    except OffTape as off:
                        off.products = products
                        raise
                    if number == index:
                        change(results)
                    elif number in self._costly:
                        products[number] = results[0].clone()  # later calls may write to the result itself
            return [_filled(place, memory).detach().numpy().copy() for place in self._outputs]

    def whole(self) -> list[Array]:
        """The outputs where nothing is changed."""
        return self.after(next(number for number, step in enumerate(self._steps) if step), lambda results: None)

    def _wind(self, index: int) -> None:
        """Have the memory be as it is before the call with this index."""
        if index < self._position:
            self._position, self._memory, self._own = 0, dict(self._given), set()
        for number in range(self._position, index):
            step = self._steps[number]
            if step is not None:
                self._play(step, self._memory, self._own)
        self._position = index

    def _play(self, step: _ResumedCall, memory: Memory, own: set[int]) -> list[Tensor]:
        """Make a call; the tensors that it gave. ``own`` is the memory that may be written to."""
        for storage in step.writes:
            if storage not in own:
                memory[storage] = _copy(memory[storage])
                own.add(storage)
        args = _filled(step.args, memory)
        kwargs = {name: _filled(arg, memory) for name, arg in step.kwargs.items()}
        result = attempt(partial(step.func, *args, **kwargs))
        if isinstance(result, Exception):
            raise OffTape from result
        results = tensors_of(result)
        if tuple([tensor.shape for tensor in results]) != step.shapes or _numbers(result) != step.numbers:
            raise OffTape
        for made, tensor in zip(step.makes, results, strict=True):
            if made is not None:
                memory[made] = tensor
                own.add(made)
        for storage in step.frees:
            del memory[storage]
        return results


def _set_frees(steps: list[_ResumedCall | None], outputs: list[_Place]) -> None:
    """Have each step know which memory it is the last to need."""
    needed = {place.storage for place in outputs}
    for step in filter(None, reversed(steps)):
        own = set(_storages(step))
        step.frees = tuple(own - needed)
        needed |= own


def _storages(step: _ResumedCall) -> Iterator[int]:
    for place in _places((step.args, step.kwargs)):
        yield place.storage
    yield from (storage for storage in step.makes if storage is not None)


def _places(value: object) -> Iterator[_Place]:
    if isinstance(value, _Place):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _places(part)
    elif isinstance(value, dict):
        yield from _places(list(value.values()))


def _filled(value: object, memory: Memory) -> Any:
    """An argument with tensors for its places."""
    if isinstance(value, _Place):
        held = memory[value.storage]
        return held if value.whole else _view(held, value)
    if isinstance(value, (list, tuple)):
        return [_filled(part, memory) for part in value]
    return value


def _view(held: Tensor, place: _Place) -> Tensor:
    import torch

    if place.dtype == held.dtype:
        return held.as_strided(place.shape, place.stride, place.offset)
    return torch.empty(0, dtype=place.dtype).set_(held.untyped_storage(), place.offset, place.shape, place.stride)


def _copy(tensor: Tensor) -> Tensor:
    """The tensor on a copy of all of its memory."""
    import torch

    storage = tensor.untyped_storage().clone()
    empty = torch.empty(0, dtype=tensor.dtype)
    return empty.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())


def _numbers(result: object) -> str:
    """Return the results of a call besides tensors, as text."""
    import torch

    if isinstance(result, torch.Tensor):
        return ""
    if isinstance(result, (list, tuple)):
        return "".join(map(_numbers, result))
    return repr(result)


# ---- recording -----------------------------------------------------------------------------------------------


def taped(module: nn.Module, call: Callable[[], list[Array]], like: CallsOfRun) -> Tape | None:
    """A tape of ``call``, which calls the module as in the run ``like``; None where it makes other calls, cannot be
    played, or would not give the same outputs."""
    from torch.nn.modules import module as hooks

    mode, returned = _Tapes(), list["Tensor"]()

    def leave(called: nn.Module, inputs: object, result: object) -> None:
        if called is module:
            returned[:] = returned_by(result)
            mode.looks.off = True  # what the outputs become is not up to the module

    def recorded() -> Tape | None:
        with mode.looks, mode:
            wanted = call()
        if mode.ops != like.ops or not any(mode.steps):
            return None
        tape = Tape(mode.steps, mode.given, [mode.place(tensor) for tensor in returned], [*like.products])
        return tape if same(tape.whole(), wanted) else None

    after = hooks.register_module_forward_hook(leave)
    try:
        return or_else(None, recorded)  # runs of the module tell the same, and what it raises
    finally:
        after.remove()


_READS = ("numpy", "tolist", "__array__", "__dlpack__", "data_ptr", "untyped_storage", "storage", "apply_", "map_")
"""Methods of a tensor by which Python reads or writes values past the dispatcher."""


@cache
def _reads() -> set[Callable[..., object]]:
    import torch

    return {getattr(torch.Tensor, name) for name in _READS}


class _Looks(FunctionCalls):
    """Notices what Python reads of tensors past the dispatcher."""

    off = False

    def call(self, func: Callable[..., object], args: Arguments, kwargs: Keywords) -> object:
        if func in _reads() and not self.off:
            raise _Unplayable
        return func(*args, **kwargs)


class _Tapes(OperatorCalls):
    """Notes the calls of a run as the steps of a tape."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = _Looks()
        self.ops: list[str] = []
        self.steps: list[_ResumedCall | None] = []
        self.given: Memory = {}
        self._known: dict[int, tuple[int, _Place, object]] = {}
        """By the address of a storage: its number, where the first tensor in it lies, and a weak reference, which
        keeps the address from becoming that of another."""

    def call(self, func: Operator, args: Arguments, kwargs: Keywords) -> object:
        off, self.looks.off = self.looks.off, True  # what an operator reads is its own business
        try:
            return self._record(func, args, kwargs)
        finally:
            self.looks.off = off

    def _record(self, func: Operator, args: Arguments, kwargs: Keywords) -> object:
        import torch

        self.ops.append(name_of(func))
        if not isinstance(func, torch._ops.OpOverload):
            raise _Unplayable
        places = self._placed(args), self._placed(kwargs)
        writes = self._written(func, args, kwargs) if func._schema.is_mutable else []
        result = func(*args, **kwargs)
        results = tensors_of(result)
        makes = [self._new(tensor) for tensor in results]
        if results and not writes and all(storage is None for storage in makes):
            self.steps.append(None)
        else:
            shapes = tuple([tensor.shape for tensor in results])
            step = _ResumedCall(func, *places, tuple(writes), tuple(makes), shapes, _numbers(result))
            self.steps.append(step)
        return result

    def _placed(self, value: object) -> Any:
        import torch

        if isinstance(value, torch.Tensor):
            return self.place(value)
        if isinstance(value, (list, tuple)):
            return type(value)(map(self._placed, value))
        if isinstance(value, dict):
            return {name: self._placed(part) for name, part in value.items()}
        return value

    def place(self, tensor: Tensor) -> _Place:
        """Return the place of a tensor; memory that no call made is given to the run."""
        if self._new(tensor) is not None:
            self.given[len(self._known) - 1] = tensor
        number, first, _ = self._known[tensor.untyped_storage()._cdata]
        return self._looks(tensor, number, first)

    def _looks(self, tensor: Tensor, number: int, first: _Place | None) -> _Place:
        place = _Place(number, True, tensor.shape, tensor.stride(), int(tensor.storage_offset()), tensor.dtype)
        return place if first is None or place == first else replace(place, whole=False)

    def _new(self, tensor: Tensor) -> int | None:
        """Return the number of memory that was not met before; None of other memory."""
        import torch
        from torch.multiprocessing.reductions import StorageWeakRef

        weak: Any = StorageWeakRef  # which is not typed
        plain = tensor.layout == torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized
        if not plain or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            raise _Unplayable
        if tensor.is_conj() or tensor.is_neg():
            raise _Unplayable
        storage = tensor.untyped_storage()
        if storage._cdata in self._known:
            return None
        number = len(self._known)
        self._known[storage._cdata] = number, self._looks(tensor, number, None), weak(storage)
        return number

    def _written(self, func: Operator, args: Arguments, kwargs: Keywords) -> list[int]:
        """Return the memory that a call will write to; what was given is kept as it is now."""
        written = []
        for position, argument in enumerate(func._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            for tensor in tensors_of(value):
                number = self._known[tensor.untyped_storage()._cdata][0]
                written.append(number)
                if number in self.given:
                    self.given[number] = _copy(self.given[number])
        return written
