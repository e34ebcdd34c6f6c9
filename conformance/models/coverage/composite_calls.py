"""Calls that PyTorch computes by other operators and exporters translate as a whole, such as ``isclose``.

The dispatcher shows their parts alone. What Python called is seen by a mode for its functions, in a run of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import FunctionType

from conformance.models.coverage.operator_calls import CallSite, CallsOfRun, hands_on, name_of
from conformance.models.reference.dispatch import Arguments, FunctionCalls, Keywords, Operator, OperatorCalls
from conformance.process.errors import works


def parts_of_composites(call: Callable[[], object], like: CallsOfRun) -> set[CallSite]:
    """Return the calls of the run ``like`` that ``call`` makes again inside of one call of Python's, but for that
    which computes the result of it. Empty where the run cannot be made so, as under PyTorch's compiler, which an
    operator that takes programs needs, or makes other calls."""
    if any("." not in op for op in like.ops):
        return set()
    mode = _CallsWithin(_PythonCalls())

    def run() -> None:
        with mode.outer, mode:
            call()

    if not works(run) or mode.ops != like.ops:  # the run without the mode tells what counts
        return set()
    last = {number: index for index, number in enumerate(mode.within) if not mode.handing_on[index]}
    within = {site: mode.within[index] for site, index in like.sites.items()}
    return {
        site for site, number in within.items()
        if number is not None and last.get(number) != like.sites[site] and translated(mode.outer.names[number])
    }  # fmt: skip


@cache
def translated(name: str) -> bool:
    """Return whether one of torch's exporters knows an operator of ATen by this name."""
    return f"aten::{name}" in _symbolics() or name in _lowerings()


@cache
def _symbolics() -> set[str]:
    try:
        from torch.onnx._internal.torchscript_exporter import utils
        from torch.onnx._internal.torchscript_exporter.registration import registry

        return set(registry.all_functions()) if utils else set()
    except (ImportError, AttributeError):  # a torch that is built otherwise
        return set()


@cache
def _lowerings() -> set[str]:
    try:
        from torch.onnx._internal.exporter._registration import ONNXRegistry

        names = (str(target).replace("::", ".").split(".") for target in ONNXRegistry.from_torchlib().functions)
        return {name for space, name, *_ in (parts for parts in names if len(parts) > 1) if space == "aten"}
    except (ImportError, AttributeError):  # a torch that is built otherwise
        return set()


class _PythonCalls(FunctionCalls):
    """Numbers the calls of functions that are not written in Python."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.current: int | None = None

    def call(self, func: Callable[..., object], args: Arguments, kwargs: Keywords) -> object:
        if not isinstance(func, FunctionType):
            self.current = len(self.names)
            self.names.append(str(getattr(func, "__name__", "")))
        try:
            return func(*args, **kwargs)
        finally:
            self.current = None


class _CallsWithin(OperatorCalls):
    """Notes the operators, and the number of the call of Python's that each is called in."""

    def __init__(self, outer: _PythonCalls) -> None:
        super().__init__()
        self.outer = outer
        self.ops: list[str] = []
        self.within: list[int | None] = []
        self.handing_on: list[bool] = []

    def call(self, func: Operator, args: Arguments, kwargs: Keywords) -> object:
        self.ops.append(name_of(func))
        self.within.append(self.outer.current)
        self.handing_on.append(hands_on(func))
        return func(*args, **kwargs)
