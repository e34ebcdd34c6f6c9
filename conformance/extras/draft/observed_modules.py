"""The modules that a script calls: what each was made with, what it was given, and the case that this comes to."""

from __future__ import annotations

import contextlib
import inspect
import runpy
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any
from unittest import mock

from conformance.case.files.python import Folder, describe
from conformance.extras.draft.drafting import Draft, Request, building
from conformance.extras.draft.guessed_inputs import no_input
from conformance.extras.draft.recorded_inputs import KEPT, RecordedCall, call_of, is_plain
from conformance.extras.draft.submodules import from_calls
from conformance.models.reference.state import shapes
from conformance.process.errors import Stopped, UserError, attempt, or_else

if TYPE_CHECKING:
    from torch.nn import Module


@dataclass(frozen=True)
class ObservedModule:
    """A module that a script called."""

    kind: str
    """Its class."""
    request: Request
    files: Mapping[str, str]
    """What the case needs beside it, by name."""
    draft: Draft | str
    """Or why there is none."""


@dataclass(frozen=True)
class Script:
    """Hold what a script called."""

    modules: list[ObservedModule]
    stopped: str
    """The error that ended it, if one did."""


@dataclass
class _Module:
    """A module while the script runs."""

    module: Module
    calls: list[RecordedCall] = field(default_factory=list)
    count: int = 0
    refused: str = ""
    """Why a case cannot say a call."""


@dataclass
class _Recorder:
    """Notes who made each module, and the calls of those that no other module calls."""

    script: Path
    made: dict[int, list[tuple[FrameType | None, dict[str, object]]]] = field(default_factory=dict)
    """By the module's address: who may be asked to make such a module, the likeliest first, and with what."""
    seen: dict[int, _Module] = field(default_factory=dict)
    depth: int = 0

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        """While this is open, what modules are made with, and called with, is noted."""
        import torch

        init, call, recorder = torch.nn.Module.__init__, torch.nn.Module.__call__, self

        def made(module: Module, *args: object, **kwargs: object) -> None:
            recorder.made[id(module)] = list(_makers(module, recorder.script))
            init(module, *args, **kwargs)

        def called(module: Module, *args: object, **kwargs: object) -> object:
            if recorder.depth == 0:
                recorder.note(module, args, kwargs)
            recorder.depth += 1
            try:
                return call(module, *args, **kwargs)
            finally:
                recorder.depth -= 1

        base = torch.nn.Module
        with mock.patch.object(base, "__init__", made), mock.patch.object(base, "__call__", called):
            yield

    def note(self, module: Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        one = self.seen.setdefault(id(module), _Module(module))
        one.count += 1
        if len(one.calls) < KEPT and not one.refused:
            try:
                one.calls.append(call_of(module, args, kwargs))
            except Stopped as stop:
                one.refused = stop.reason
            except TypeError:  # arguments that forward does not take, of which the script will hear
                one.count -= 1


def _makers(module: Module, script: Path) -> Iterator[tuple[FrameType | None, dict[str, object]]]:
    """The function that the script itself called, and the class, which has no frame where it has no ``__init__`` of
    its own; with the arguments as they are now."""
    made = inspect.currentframe()
    frame = made.f_back.f_back if made is not None and made.f_back is not None else None
    frames: list[FrameType] = []
    while frame is not None and frame.f_code.co_filename != str(script):
        frames.append(frame)
        frame = frame.f_back
    if frame is not None and _is_init(frame, module):
        frames = [frame]
    own = [one for one in frames if _is_init(one, module)]
    if frame is not None:
        for one in frames[-1:]:
            if one not in own:
                yield one, _arguments(one)
    yield (own[-1], _arguments(own[-1])) if own else (None, {})


def _is_init(frame: FrameType, module: Module) -> bool:
    return frame.f_code.co_name == "__init__" and frame.f_locals.get("self") is module


def _arguments(frame: FrameType) -> dict[str, object]:
    known = inspect.getargvalues(frame)
    given = {name: known.locals[name] for name in known.args if name in known.locals}
    given.pop("self", None)
    if known.varargs and known.locals.get(known.varargs):
        given[f"*{known.varargs}"] = known.locals[known.varargs]
    return given | dict(known.locals.get(known.keywords or "", {}))


# ---- what a case says of it ------------------------------------------------------------------------------------


def observe(script: Path, folder: Path, name: str) -> Script:
    """Run a script, and draft a case for ``folder`` of each module that it called itself.

    Raises UserError where it called none.
    """
    recorder, stopped = _Recorder(script), ""
    arguments, searched = sys.argv, sys.path.copy()
    sys.argv, sys.path[:] = [str(script)], [str(script.parent), *searched]
    try:
        with contextlib.suppress(SystemExit), recorder.noting():
            ended = attempt(lambda: runpy.run_path(str(script), run_name="__main__"))
            if isinstance(ended, Exception):
                stopped = f"{script.name} stopped: {describe(ended, script.parent)}"
    finally:
        sys.argv, sys.path[:] = arguments, searched
    called = [one for one in recorder.seen.values() if one.count]
    if not called:
        raise UserError(stopped or f"{script.name} called no module")
    names = [f"{name}_{number}" for number in range(1, len(called) + 1)] if len(called) > 1 else [name]
    drafts = [_draft_observed(one, recorder, folder, own, script) for one, own in zip(called, names, strict=True)]
    return Script(drafts, stopped)


def _draft_observed(one: _Module, recorder: _Recorder, folder: Path, own: str, script: Path) -> ObservedModule:
    """``own`` is the name of the file that the case may need beside it."""
    kind = type(one.module)

    def refused(why: str) -> ObservedModule:
        return ObservedModule(kind.__name__, Request(folder, _dotted(kind, script), {}, {}), {}, why)

    if one.refused:
        return refused(one.refused)
    whys = []
    for frame, given in recorder.made.get(id(one.module), []):
        try:
            what = _name_maker(frame, one.module, script)
            said = _Said(own, script)
            request = Request(folder, what, said.arguments(given, _defaults(what, folder)), {})
            with _beside(folder, said.files), building(request) as module:
                _same(module, one.module)
                # of calls that leave out optional arguments, that which gives most of them says most
                draft = from_calls(module, sorted(one.calls, key=lambda call: -len(call.arguments)))
                if not isinstance(draft, Draft):
                    draft = from_calls(module, one.calls)
            return ObservedModule(kind.__name__, request, said.files, draft)
        except Stopped as stop:
            whys.append(stop.reason)
    if kind.__module__ == "__main__" and folder != script.parent:
        beside = f"--folder {script.parent.name}"
        whys.append(f"it is defined in {script.name}, so the case has to lie beside it: {beside}")
    return refused(whys[-1] if whys else "it was there before the script ran")


def _dotted(kind: Any, script: Path) -> str:
    """The shortest name of a class or function: torch.nn.Linear, not torch.nn.modules.linear.Linear."""
    if kind.__module__ == "__main__":
        return f"{script.stem}.{kind.__qualname__}"
    words = kind.__module__.split(".")
    packages = (".".join(words[:count]) for count in range(1, len(words)))
    inside = (name for name in packages if getattr(sys.modules.get(name), kind.__qualname__, None) is kind)
    return f"{next(inside, kind.__module__)}.{kind.__qualname__}"


def _name_maker(frame: FrameType | None, module: Module, script: Path) -> str:
    """The dotted name of the function that a frame is a call of, or else of the class."""
    if frame is None or _is_init(frame, module):
        kind = type(module)
        if kind.__module__ == "__main__" and "__main__" not in script.read_text(encoding="utf-8"):
            raise no_input(
                f"it is defined in {script.name}, which would run again where it is imported: put what it runs "
                'below if __name__ == "__main__":'
            )
        return _dotted(kind, script)
    name, known = frame.f_code.co_name, frame.f_globals
    function = known.get(name)
    if not callable(function) or getattr(inspect.unwrap(function), "__code__", None) is not frame.f_code:
        raise no_input(f"it was made in {name}, which is no function of a module")
    return _dotted(function, script)


def _defaults(what: str, folder: Path) -> dict[str, object]:
    with Folder.of(folder).active() as own:
        make = own.resolve(what)
        parameters = or_else({}, lambda: dict(inspect.signature(make).parameters))
    return {name: one.default for name, one in parameters.items() if one.default is not one.empty}


@contextlib.contextmanager
def _beside(folder: Path, files: Mapping[str, str]) -> Iterator[None]:
    """The files, while this is open; those that are there stay as they are."""
    new = {folder / name: text for name, text in files.items() if not (folder / name).exists()}
    for file, text in new.items():
        file.write_text(text, encoding="utf-8")
    try:
        yield
    finally:
        for file in new:
            file.unlink()


def _same(built: Module, seen: Module) -> None:
    """Raise Stopped unless both have the same weights but for their values."""
    own, others = shapes(built), shapes(seen)
    if own != others:
        differ = sorted({*own.items()} ^ {*others.items()}, key=str)
        raise no_input(f"made again it has other weights ({differ[0][0]}): it was changed after it was made")


@dataclass
class _Said:
    """Arguments as a case says them under ``with``."""

    stem: str
    script: Path
    files: dict[str, str] = field(default_factory=dict)

    def arguments(self, given: Mapping[str, object], defaults: Mapping[str, object]) -> dict[str, object]:
        """Return those that are not as their defaults."""
        wanted = {
            name: value
            for name, value in given.items()
            if not (name in defaults and (value is defaults[name] or _equal(value, defaults[name])))
        }
        return {name: self.value(name, value) for name, value in wanted.items()}

    def value(self, name: str, value: Any) -> object:
        import torch

        if isinstance(value, torch.dtype):
            return str(value)
        if is_plain(value):
            return value
        if isinstance(value, (list, tuple)) and not name.startswith("*"):
            return [self.value(name, one) for one in value]
        if type(value) is dict and all(isinstance(key, str) for key in value):
            return {key: self.value(name, one) for key, one in value.items()}
        text = or_else(None, lambda: value.to_json_string()) if hasattr(type(value), "from_dict") else None
        if isinstance(text, str):
            file = f"{self.stem}.json"
            self.files[file] = text
            return {"file": file, "of": _dotted(type(value), self.script)}
        raise no_input(f"it was made with {name}, a {type(value).__name__}, which a case cannot say")


def _equal(one: object, other: object) -> bool:
    """Return whether both are plain values, or lists, and the same.

    Other objects may have no truth value of theirs.
    """
    return all(is_plain(value) or isinstance(value, (tuple, list)) for value in (one, other)) and one == other
