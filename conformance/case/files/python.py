"""The Python that stands beside a case file: loading it, resolving names in it, and calling it.

Every folder has its own ``modules.py`` and ``symbolics.py``. A warm worker loads many of them, so a folder's
modules are in ``sys.modules`` only while a cell of that folder runs (``Folder.active``); sibling imports,
also those inside functions, then find the right ones. So it is with the package that a folder is a part of.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import itertools
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from conformance import HOME
from conformance.case.files.declaration import COMMAND, Case
from conformance.process.errors import (
    Stopped,
    Unavailable,
    attempt,
    causes,
    did_you_mean,
    display_path,
    or_else,
    text_of,
)
from conformance.process.worker import uses
from conformance.process.worker.reserved import is_reserved, names_of, taken
from conformance.process.worker.state import fence
from conformance.results.records.record_types import Place

EXPRESSION = "<forward of "
"""The beginning of the name under which Python knows the source of an expression."""


_INTERPRETER = "Traceback of TorchScript"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def package_above(folder: Path) -> Path | None:
    """Return the outermost folder of the package that a folder is a part of; None where it is of none."""
    outermost = None
    while folder != folder.parent and (folder / "__init__.py").is_file():
        outermost, folder = folder, folder.parent
    return outermost


def search_roots(folder: Path) -> list[Path]:
    """Return where the Python that cases name is looked for, before what is installed.

    Beside the case file, where the package lies that its folder is a part of, and in the working directory, as with
    ``python -m``.
    """
    package = package_above(folder)
    working = or_else(None, lambda: Path(uses.absolute(".")))  # which may be deleted meanwhile
    roots = (folder, package and package.parent, working)
    return list(dict.fromkeys(root for root in roots if root is not None))


class Folder:
    """The Python files of one folder; use inside ``with folder.active():``."""

    _known: dict[Path, Folder] = {}
    _packages: dict[Path | None, dict[str, ModuleType]] = {}
    """The modules of each package that folders are parts of, which these share."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._package = package_above(path)
        self._shared = self._packages.setdefault(self._package, {})
        self._modules: dict[str, ModuleType] = {}
        self._searched: tuple[list[str], list[str]] = [], []
        self._seen = False

    @classmethod
    def of(cls, path: Path) -> Folder:
        path = path.resolve()
        return cls._known.setdefault(path, cls(path))

    @contextlib.contextmanager
    def active(self) -> Iterator[Folder]:
        """Put the folder's ``search_roots`` first on ``sys.path`` and its modules into ``sys.modules``, and take both
        out again, with what its Python put on ``sys.path``."""
        if not self._seen:
            for name in filter(is_reserved, [name for root in search_roots(self.path) for name in names_of(root)]):
                if name not in sys.modules:  # loaded before a file could hide it
                    attempt(partial(importlib.import_module, name))  # one that is not there is hidden from nobody
        outside = {name: sys.modules[name] for name in self._names() if name in sys.modules}
        if outside:  # rarely: modules inside of those that are hidden are hidden too
            outside |= {name: one for name, one in [*sys.modules.items()] if name.partition(".")[0] in outside}
        for name in outside:
            del sys.modules[name]
        sys.modules.update({**self._shared, **self._modules})
        latest, searched = next(reversed(sys.modules)), sys.path.copy()
        begins, inner = self._searched
        own = [*map(str, search_roots(self.path)), *searched]
        sys.path[:] = inner if begins == own else own
        if not self._seen:  # modules are loaded once in a process, so files written later do not count
            importlib.invalidate_caches()
            self._seen = True
        try:
            yield self
        finally:
            self._searched = own, sys.path.copy()
            sys.path[:] = searched
            # of thousands of modules most cells load none, and what they load comes last
            new = itertools.takewhile(lambda name: name != latest, [*reversed(sys.modules)])
            for name in [name for name in new if self._owns(sys.modules[name])]:
                of_package = self._package is not None and name.partition(".")[0] == self._package.name
                (self._shared if of_package else self._modules)[name] = sys.modules[name]
            for name in (*self._shared, *self._modules):
                sys.modules.pop(name, None)
            sys.modules.update(outside)

    def _names(self) -> list[str]:
        """The modules and packages of the folder, and the package around it, which hide installed ones of these
        names."""
        around = [] if self._package is None else [self._package.name]
        return [*(name for name in names_of(self.path) if not is_reserved(name)), *around]

    def has(self, name: str) -> bool:
        """Return whether the folder has a module or a package of this name."""
        return (self.path / f"{name}.py").is_file() or (self.path / name / "__init__.py").is_file()

    def _owns(self, module: ModuleType) -> bool:
        # Compared as text, since resolving paths takes longer than many a whole cell.
        file = getattr(module, "__file__", None) or ""
        return file.startswith(f"{self._package or self.path}{os.sep}")

    def module(self, name: str) -> ModuleType:
        """Load ``name.py`` or the package ``name`` of this folder, or else the installed package of that name.

        Stopped at ``declare`` where there is neither, or where it does not import. Raises Stopped too for a file with
        the name of a module that others need.
        """
        if is_reserved(name) and self.has(name):
            raise Stopped("declare", "TakenName", _taken(self.path, name), "case")
        if not self.has(name) and name not in sys.modules and importlib.util.find_spec(name) is None:
            packages = (file.parent.name for root in search_roots(self.path) for file in root.glob("*/__init__.py"))
            near = did_you_mean(name, [*self._names(), *packages])
            where = "is installed, or lies in the working directory"
            text = f"there is no {display_path(self.path / name)}.py, and no package {name} {where}{near}"
            raise Stopped("declare", "MissingFile", text, "case")
        return self._imported(name)

    def _imported(self, dotted: str) -> ModuleType:
        fence.note_code(self.path)
        try:
            if dotted in sys.modules:
                return sys.modules[dotted]
            with fence.loading():
                return importlib.import_module(dotted)
        except Unavailable:
            raise
        except KeyboardInterrupt:
            raise
        except (
            BaseException
        ) as error:  # whatever the module raises as it is loaded, or exits with: the Stopped has it
            text = f"{self._name_module(dotted)} does not import: {describe(error, self.path)}"
            raise Stopped("declare", type(error).__name__, text, "case") from None
        finally:
            uses.names_module(dotted)

    def resolve(self, dotted: str) -> Any:
        """The object that ``file.name`` (or ``file.Class.name``, or ``package.module.name``) means; Stopped at
        ``declare`` otherwise. Files beside the case go before installed packages."""
        first, *rest = dotted.split(".")
        target: Any = self.module(first)
        for count, name in enumerate(rest, 1):
            if not hasattr(target, name) and not self._is_submodule(target, name):
                near = did_you_mean(name, [known for known in vars(target) if not known.startswith("_")])
                where = self._name_module(".".join((first, *rest[: count - 1])))
                text = f"{where} has no '{name}' (for {dotted}){near}"
                raise Stopped("declare", "MissingName", text, "case")
            target = getattr(target, name) if hasattr(target, name) else self._imported(f"{target.__name__}.{name}")
        return target

    def _is_submodule(self, target: object, name: str) -> bool:
        try:
            inside = f"{target.__name__}.{name}" if isinstance(target, ModuleType) else None
            return inside is not None and importlib.util.find_spec(inside) is not None
        except (ImportError, ValueError, AttributeError):  # it is no package
            return False

    def _name_module(self, dotted: str) -> str:
        """Name a module in a message: by its file, where that lies in this folder."""
        first = dotted.partition(".")[0]
        return f"{display_path(self.path / first)}.py" if (self.path / f"{first}.py").is_file() else dotted


def _taken(folder: Path, name: str) -> str:
    file = folder / name
    return taken(Path(display_path(file if file.is_dir() else file.with_suffix(".py"))))


def _meant(error: BaseException) -> str:
    """Return the module in which something was looked for and not found; an empty text where that is not so."""
    if isinstance(error, AttributeError):
        return error.obj.__name__.partition(".")[0] if isinstance(error.obj, ModuleType) else ""
    return (error.name or "").partition(".")[0] if isinstance(error, ImportError) else ""


def describe(error: BaseException, folder: Path) -> str:
    """``ValueError: text (modules.py:12)``: one line, with the place in the user's own code if there is one, and the
    file there that has the name of a module which was used in its place."""
    text, meant = _described(error, folder), _meant(_first_cause(error))
    hides = is_reserved(meant) and Folder.of(folder).has(meant)
    return f"{text}; {_taken(folder, meant)}" if hides else text


def _described(error: BaseException, folder: Path) -> str:
    cause = _first_cause(error)
    said = type(cause).__name__ + (f": {_head(cause)}" if _head(cause) else "")
    text = said if cause is error else f"{type(error).__name__}, caused by {said}"
    text = text if len(text) <= 400 else f"{text[:397]}..."
    if isinstance(error, SyntaxError) and error.filename:
        return f"{text} ({Path(error.filename).name}:{error.lineno})"
    frames = traceback.extract_tb(cause.__traceback__) or traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).resolve().is_relative_to(folder.resolve())]
    known = own and _INTERPRETER not in text_of(cause)  # whose text names the line inside
    return f"{text} ({Path(own[-1].filename).name}:{own[-1].lineno})" if known else text


def raised_at(error: BaseException, folder: Path) -> Place | None:
    """Return where an exception was raised, for the record: the innermost line in the user's ``own`` code, or else
    outside of this package. None where that is not known."""
    first = next((cause for cause in causes(error) if not isinstance(cause, Stopped)), None)
    frames = [] if first is None else traceback.extract_tb(_first_cause(first).__traceback__)
    own = [frame for frame in frames if Path(frame.filename).resolve().is_relative_to(folder.resolve())]
    others = [frame for frame in frames if not Path(frame.filename).is_relative_to(HOME)]
    for frame in (*own[-1:], *others[-1:]):
        file = frame.filename.rpartition(f"site-packages{os.sep}")[2]
        return {"file": display_path(Path(file)), "line": frame.lineno, "own": bool(own)}
    return None


def _first_cause(error: BaseException) -> BaseException:
    """Find what torch.onnx or onnx_ir stopped at.

    It is behind the exceptions that only say at which of their steps.
    """
    while type(error).__module__.startswith(("torch.onnx", "onnx_ir")) and error.__cause__ is not None:
        error = error.__cause__
    return error


def caused_by(error: BaseException) -> str | None:
    """Return the name of what torch.onnx or onnx_ir stopped at, where the exception is theirs and only passes it
    on."""
    cause = _first_cause(error)
    return None if cause is error else type(cause).__name__


def _head(error: BaseException) -> str:
    """The first line of an error's text, with the second where the first ends with a colon; of what TorchScript's
    interpreter raises the last one, which says why, with the line of the user's that it names last."""
    text = _COLOURS.sub("", text_of(error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if _INTERPRETER in text:
        places = re.findall(r'File "([^"]+)", line (\d+)', text)
        where = f" ({Path(places[-1][0]).name}:{places[-1][1]})" if places else ""
        return f"{lines[-1].removeprefix('RuntimeError: ')}{where}"
    lines = [line for line in lines if not _PLACE_ALONE.fullmatch(line)] or lines
    return " ".join(lines[: 2 if lines and lines[0].endswith(":") else 1])


_PLACE_ALONE = re.compile(r"Exception from \S+:|Check '.*' failed at \S+:")
"""A line that only says where in its own sources OpenVINO stops."""


def call(what: str, function: Callable[..., object], /, *args: object, **kwargs: object) -> object:
    """Calls a function that the case brings; ``what`` names it in the message.

    Stopped at ``declare`` where the function takes other arguments: the case's mistake, although no line of its code
    is in the traceback.
    """
    try:
        return function(*args, **kwargs)
    except TypeError as error:
        called = f"{getattr(function, '__qualname__', '?')}() "
        wrapped = text_of(error).startswith(called)  # as by torch's parse_args
        if wrapped or (error.__traceback__ is not None and error.__traceback__.tb_next is None):
            raise Stopped("declare", "TypeError", f"{what} cannot be called: {error}", "case") from None
        raise


def check_needs(case: Case) -> None:
    """Unavailable where a package or command that the case needs is not on this host."""
    import shutil

    for need in case.says.needs:
        command = need.removeprefix(COMMAND)
        if command != need:
            if shutil.which(command) is None:
                raise Unavailable(f"the command '{command}' is not installed")
        elif importlib.util.find_spec(need) is None:
            raise Unavailable(f"the package '{need}' is not installed")
