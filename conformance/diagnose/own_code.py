"""Code of the case's own that an export runs and PyTorch by itself does not, which nobody declares.

The ``symbolic`` of an ``autograd.Function``, one that a file registers for all exports, a branch on
``torch.onnx.is_in_onnx_export()``, what ``torch.library`` runs in place of a kernel: there are many doors. So the
module is run and then exported with the same inputs, and its Python is watched, instruction by instruction.
"""

from __future__ import annotations

import dis
import inspect
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any

from conformance.case.files.python import EXPRESSION
from conformance.models.cell_run import CellRun
from conformance.process.arrays import Inputs
from conformance.process.errors import Details, attempt, causes, display_path, or_else
from conformance.process.worker import aside
from conformance.process.worker.uses.whose import EVERYWHERE, INSTALLED, USER, kind_of, learn_places, package_of

SECONDS = 60.0
"""How long watching may take. It is done in a process of its own, which is then ended."""
_SYMBOLIC = ("_run_symbolic_function", "_run_symbolic_method")
"""The functions of the TorchScript exporter that call what makes nodes of an operator."""


@dataclass(frozen=True)
class Own:
    """One function of the case's own."""

    name: str
    """``beside.Gate.symbolic``, or ``beside.Net.forward at beside.py:12`` where only that line goes another way."""
    operator: str | None = None
    """The operator that it makes nodes of, as ``aten::asinh``; None where it is not known, or is about none."""
    captures: bool = False
    """Whether it decides what is captured of the module, rather than what is made of that."""
    line: tuple[str, int] | None = None
    """File and line at which the module goes another way."""
    written: tuple[str, int] | None = None
    """File and line of the code; None where it is no function of Python."""

    @property
    def text(self) -> str:
        return f"{self.name} for {self.operator}" if self.operator else self.name


def own_code(run: CellRun) -> list[Own]:
    """Return what the case declares, and what was seen while it was exported."""
    told = declared_own(run)
    return [*told, *(own for own in _seen(run) if own.name not in {one.name for one in told})]


def declared_own(run: CellRun) -> list[Own]:
    """Return what the case declares."""
    return [
        Own(function, None if name == function else name, written=_written(run, function))
        for name, function in run.target.own_code().items()
    ]


def told_of(own: Sequence[Own]) -> Details:
    """Return the fields of a record that say which code to look at first, and where it is written."""
    places = [own.written for own in own if own.written is not None]
    file, line = places[0] if places else (None, None)
    place = None if file is None else {"file": display_path(Path(file)), "line": line, "own": True}
    return {"own_code": [one.text for one in own], "place": place}


def accused(own: Sequence[Own], operator: Mapping[str, object] | None) -> list[Own]:
    """Return which of it may be at fault for a wrong export: all, unless the ``operator`` that is exported wrongly is
    known. A program that was captured rightly leaves nothing to who decides what is captured."""
    if not operator or operator.get("unable"):
        return list(own)
    if operator.get("stage") == "capture":
        return [one for one in own if one.captures]
    names = {operator.get("operator"), operator.get("within")}
    return [
        one for one in own
        if not one.captures
        and (one.operator is None or operator.get("untied") or _called(one.operator) in names)
    ]  # fmt: skip


def _called(operator: str) -> str:
    """Return ``aten.sub`` of ``aten::sub.Tensor``, as an operator is called that is found to be exported wrongly."""
    space, _, name = operator.rpartition("::")
    return f"{space}.{name.partition('.')[0]}" if space else operator


def raising(run: CellRun, error: BaseException) -> list[str]:
    """Return the function by way of which an export has failed and PyTorch by itself does not go, unless the case
    declares it."""
    places = [
        (place.tb_frame, _instruction(place.tb_frame.f_code, place.tb_lasti))
        for cause in causes(error)
        for place in _steps_of(cause)
    ]
    own = [(frame, step) for frame, step in places if _is_own(frame.f_code.co_filename)]
    if not own:
        return []
    steps = or_else(None, lambda: aside.ask(lambda: _eagerly(run).steps, SECONDS))
    if steps is None:
        return []
    others = [(frame, step) for frame, step in own if step not in steps.get(_key(frame.f_code), ())]
    told = (_branch(frame, step).name if _key(frame.f_code) in steps else _name(frame) for frame, step in others)
    outermost = next(told, None)
    return [] if outermost is None or outermost in run.target.own_code().values() else [outermost]


def _written(run: CellRun, function: str) -> tuple[str, int] | None:
    """Return where a function that the case declares begins; what onnxscript compiles has its Python inside."""

    def place() -> tuple[str, int]:
        found = run.reference.folder.resolve(function)
        code = inspect.unwrap(getattr(found, "function", found)).__code__
        return code.co_filename, code.co_firstlineno

    return or_else(None, place)


def _steps_of(error: BaseException) -> Iterator[TracebackType]:
    place = error.__traceback__
    while place is not None:
        yield place
        place = place.tb_next


def _instruction(code: CodeType, step: int) -> int:
    """Return where the instruction of a step begins. From CPython 3.11 on an error in a function of Python is placed
    at the end of the caches behind the instruction that called it."""
    return max((one.offset for one in dis.get_instructions(code) if one.offset <= step), default=step)


def turn(run: CellRun, inputs: Inputs) -> Own | None:
    """Return the first line at which PyTorch goes another way with these inputs than with those of the export; to be
    asked in a process of its own."""
    traced, watch = _eagerly(run), _Watch()
    run.reference.restore()
    with watch:
        run.reference(inputs)
    return min(watch.turns(traced), key=lambda found: found[0], default=(0, None))[1]


# ---- watching --------------------------------------------------------------------------------------------------


def _seen(run: CellRun) -> list[Own]:
    """Return what was seen; once for all cells of a model."""
    known: dict[Any, list[Own]] = run.prepared.own_code
    model = run.cell.exporter, run.cell.opset
    if run.cell.exporter == "onnx":
        return []
    if model not in known:
        known[model] = or_else([], lambda: aside.ask(lambda: _watched(run), SECONDS))
    return known[model]


def _eagerly(run: CellRun) -> _Watch:
    """Watch PyTorch by itself, a second time: the first call may fill what the module keeps for the next one."""
    run.set_apart()
    learn_places()
    inputs, watch = run.prepared.inputs(), _Watch()
    run.reference.afresh(inputs)
    run.reference.restore()
    with watch:
        run.reference(inputs)
    return watch


def _watched(run: CellRun) -> list[Own]:
    eager = _eagerly(run)
    with _Watch(eager) as exporting:
        attempt(run.export)
    return exporting.found()


_Key = tuple[str, str, int]
"""File, qualified name and first line of a function."""


class _Watch:
    """The instructions of the case's own Python that are run inside the block."""

    def __init__(self, eager: _Watch | None = None) -> None:
        """``eager`` has what PyTorch runs by itself, where this one watches an export."""
        self.steps: dict[_Key, dict[int, int]] = {}
        """By function its instructions in the order in which they are first run, with the number of that."""
        self._count = 0
        self._frames: dict[_Key, FrameType] = {}
        self._eager = eager
        self._called: dict[_Key, Own] = {}
        """The functions that an export alone calls with values, but for those that these call."""

    def __enter__(self) -> _Watch:
        self._outer = sys.gettrace()
        sys.settrace(self._enter)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._outer)

    def found(self) -> list[Own]:
        """Return the functions that the export alone calls, and those in which it goes another way."""
        assert self._eager is not None
        return [*self._called.values(), *(own for _, own in self.turns(self._eager))]

    def turns(self, other: _Watch) -> Iterator[tuple[int, Own]]:
        """Give each function that goes another way than in the other block, at the line where that begins, and when
        that was."""
        for key, steps in self.steps.items():
            turn = _turn(steps, other.steps.get(key, steps))
            if turn is not None:
                yield turn[0], _branch(self._frames[key], turn[1])

    def _enter(self, frame: FrameType, event: str, argument: object) -> Any:
        if not _is_own(frame.f_code.co_filename):
            return None
        key = _key(frame.f_code)
        steps = self.steps.setdefault(key, {})
        self._frames[key] = frame
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if self._eager is not None and key not in self._eager.steps and _takes_values(frame):
            self._note(key, frame)

        def step(frame: FrameType, event: str, argument: object) -> object:
            if event == "opcode" and frame.f_lasti not in steps:
                self._count += 1
                steps[frame.f_lasti] = self._count
            return step

        return step

    def _note(self, key: _Key, frame: FrameType) -> None:
        around = [one for one, _ in traceback.walk_stack(frame)][1:]
        if not any(_key(one.f_code) in self._called for one in around):
            makers = [one.f_locals for one in around if one.f_code.co_name in _SYMBOLIC]
            made = makers[0] if makers else {}
            operator = str(made["node"].kind()) if "node" in made else made.get("op_name")
            place = None if key[0].startswith(EXPRESSION) else (key[0], key[2])
            self._called[key] = Own(_name(frame), operator, captures=not makers, written=place)


def _turn(ours: Mapping[int, int], theirs: Mapping[int, int]) -> tuple[int, int] | None:
    """Return when two runs of a function part, and the last instruction of both; None where they do not."""
    for steps, others in ((ours, theirs), (theirs, ours)):
        before = next(iter(steps), 0)
        for step, when in steps.items():
            if step not in others:
                return when, before
            before = step
    return None


def _key(code: CodeType) -> _Key:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _name(frame: FrameType) -> str:
    if frame.f_code.co_filename.startswith(EXPRESSION):
        return "forward"
    return f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}"


def _branch(frame: FrameType, step: int) -> Own:
    """Return the line of an instruction, with its function."""
    code = frame.f_code
    line = next((line for start, end, line in code.co_lines() if start <= step < end and line), code.co_firstlineno)
    place = code.co_filename, line
    if code.co_filename.startswith(EXPRESSION):
        return Own(_name(frame), captures=True, line=place)
    return Own(f"{_name(frame)} at {Path(place[0]).name}:{line}", captures=True, line=place, written=place)


def _is_own(file: str) -> bool:
    """Return whether a file is the user's, or of a package that not every cell uses."""
    if file.startswith(EXPRESSION):
        return True
    kind = kind_of(file)
    return kind == USER or (kind == INSTALLED and package_of(file) not in EVERYWHERE)


def _takes_values(frame: FrameType) -> bool:
    """Return whether a function that begins was given a tensor, or what stands for one in a graph."""
    given = (member for value in frame.f_locals.values()
             for member in (value if isinstance(value, list | tuple) else [value]))  # fmt: skip
    return any(_is_value(value) for value in given)


def _is_value(value: object) -> bool:
    import torch

    return isinstance(value, torch.Tensor | torch._C.Value) or type(value).__module__.startswith(
        ("onnx_ir", "onnxscript")
    )
