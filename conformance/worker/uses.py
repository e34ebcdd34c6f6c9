"""What a case used in this process: files, modules, variables, the host, the clock.

Python's audit events tell of files and imports. Reads that raise no event (variables, the status of a file, the
clock, the host's name) are noted by functions in place of Python's own, which do the same and note who called.

A note belongs to the file of the user's whose code made it, and to the case that runs. A module is loaded once in a
process; so a later case that imports it takes over what that module's code has used before. Nothing here may disturb
the observed program: what fails is left out, and a note is the addition to a set.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import importlib.machinery
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from threading import get_ident
from types import CodeType, FrameType, ModuleType
from typing import Any

HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

PYTHON, INSTALLED, OWN, USER = range(4)
"""Whose code a file is: the standard library's, a distribution's, this package's, or the user's."""
SITES = ("site-packages", "dist-packages")

EVERYWHERE = frozenset({
    "torch", "torchvision", "torchgen", "numpy", "onnx", "onnx_ir", "onnxruntime", "onnxscript", "onnxsim",
    "openvino", "tensorrt", "pycuda", "sympy", "mpmath", "hypothesis", "triton", "ml_dtypes", "google", "networkx",
    "tqdm",
})  # fmt: skip
"""Packages that cells use whatever their cases say."""

Note = tuple[str, str]
"""What happened, and to what: ``("read", "/data/table.csv")``."""


@dataclass(frozen=True)
class Import:
    """A module that code asked for."""

    name: str
    file: str | None
    """The file that it was found in; "" for a module without a file, None where it was not found."""
    places: tuple[str, ...]
    """The folders in which it was looked for."""


@dataclass(frozen=True)
class Used:
    """What a case used, by absolute paths and names."""

    files: frozenset[str] = frozenset()
    """Files that were read or imported, of the user's and of distributions."""
    named: frozenset[str] = frozenset()
    """Those of its modules that the case itself names; the others are imported by these."""
    listed: frozenset[str] = frozenset()
    """Folders whose names were listed."""
    looked: frozenset[str] = frozenset()
    """Paths of which it was asked what is there."""
    imports: frozenset[Import] = frozenset()
    variables: frozenset[str] = frozenset()
    facts: frozenset[str] = frozenset()
    """What was read of the host, as ``FACTS`` of ``depends.observed`` names it."""
    fleeting: frozenset[str] = frozenset()
    """What is another at each run: the clock, random numbers of the system."""
    unseen: frozenset[str] = frozenset()
    """Where something was used that cannot be observed: another process, a connection."""


@dataclass
class _Notes:
    """What has happened so far in this process."""

    of_cases: dict[Hashable, set[Note]] = field(default_factory=dict)
    of_files: dict[str, set[Note]] = field(default_factory=dict)
    modules: dict[Hashable, set[str]] = field(default_factory=dict)
    """By case the files of modules that it names."""
    imports: dict[str, dict[tuple[str, str | None], Import]] = field(default_factory=dict)
    """By the file that imports."""
    names: dict[str, set[str]] = field(default_factory=dict)
    """By file of the user's the names that its code uses: what cannot be replaced is looked for among them."""
    count: int = 0
    lost: bool = False
    """Whether something was used and could not be noted."""
    written: set[str] = field(default_factory=set)
    set: set[str] = field(default_factory=set)
    """Variables that the user's code set."""
    before: frozenset[str] = frozenset()
    """The user's files that were loaded before any case."""
    base: frozenset[str] = frozenset()
    """The packages that were loaded before any case; what they read for themselves is none of a case's doing."""


_notes = _Notes()
_case: Hashable = None
_kinds: dict[str, int] = {}
_seen: set[Any] = set()
_within: set[int] = set()
"""The threads that are about to note something; what they do for that is nobody's use."""
_begun = False
_sites: tuple[str, ...] = ()
_python: tuple[str, ...] = ()
variables_at_first: dict[str, str] = {}
"""The variables of this process before libraries have set theirs."""


# ---- the life of the notes ----------------------------------------------------------------------------------


def begin() -> None:
    """Observe this process from now on; calling it again changes nothing."""
    global _begun, _sites, _python
    if _begun:
        return
    _begun = True
    variables_at_first.update(os.environ)
    library = {os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
    zipped = "python{}{}.zip".format(*sys.version_info)
    zips = {os.path.join(os.path.dirname(place), zipped) for place in library}  # noqa: PTH118, PTH120
    _python = (*(place + os.sep for place in library), *zips)
    _sites = tuple({os.path.realpath(place) + os.sep for place in sys.path if place and _is_site(place)})
    _notes.base = frozenset(name.partition(".")[0] for name in sys.modules) | EVERYWHERE
    sys.addaudithook(_hook)
    _watch_imports()
    _watch_variables()
    _watch_functions()


def begun() -> bool:
    """Return whether this process is observed."""
    return _begun


def settle() -> None:
    """Say that what was loaded so far belongs to all cases; to be called before the first one."""
    files: set[str] = set()
    for name, module in list(sys.modules.items()):
        file = _file_of(module)
        if file is None or name == "__main__":
            continue
        kind, top = kind_of(file), "." not in name
        if kind == USER or (kind == INSTALLED and top and name not in EVERYWHERE):
            files.add(file)
    _notes.before = frozenset(files)
    _notes.base = frozenset(name.partition(".")[0] for name in sys.modules) | EVERYWHERE


def watch_libraries() -> None:
    """Note also what PyTorch says of the host, where it is loaded; called again it changes nothing."""
    torch = sys.modules.get("torch")
    if not _begun or torch is None:
        return
    for module, names in ((torch.backends.cpu, ("get_cpu_capability",)), (torch.cuda, ("is_available",))):
        for name in names:
            _replace(module, name, "fact", "cpu" if module is not torch.cuda else "gpu")
    for name in [name for name in dir(torch.cpu) if name.startswith("_is_")]:
        _replace(torch.cpu, name, "fact", "cpu")
    _watch_reader(torch, "from_file")


@contextlib.contextmanager
def of_case(case: Hashable) -> Iterator[None]:
    """Give what happens inside the block to a case, with what it has used in this process before."""
    global _case
    _notes.of_cases.setdefault(case, set())
    outer, _case = _case, case
    try:
        yield
    finally:
        _case = outer


def names_module(name: str) -> None:
    """Note that the case names a module, which may have been loaded long ago."""
    with contextlib.suppress(Exception):
        file = _file_of(sys.modules.get(name))
        if file is not None:
            known = _notes.modules.setdefault(_case, set())
            _notes.count += file not in known
            known.add(file)


def reads(file: str) -> None:
    """Note that compiled code is about to read a file on behalf of the case."""
    with contextlib.suppress(Exception):
        _note("read", _absolute(file), None)


def so_far(roots: Iterable[str] = (), keep: Callable[[str], bool] = lambda file: True) -> Used:
    """Return what the current case has used so far; of the modules that it names only those that ``keep`` wants.

    ``roots`` are files of modules that it uses, whoever had them loaded.
    """
    own = set(_notes.of_cases.get(_case, ()))  # a copy, since other threads may add to it
    named = {file for file in (*_notes.modules.get(_case, ()), *roots) if keep(file)}
    begun_by = {what for kind, what in own if kind == "by" and keep(what)}
    files, imports = _closure({*named, *begun_by, *_notes.before})
    happened = {note for note in own if note[0] != "by"}
    skipped = {file for file in _notes.modules.get(_case, ()) if not keep(file)} - files
    for note in [note for file in skipped for note in _notes.of_files.get(file, ())]:
        happened.discard(note)
    happened.update(*(_notes.of_files.get(file, ()) for file in files))
    happened -= {("read", file) for file in skipped}
    clock = {"the clock" for file in files if _reads_clock(file)}

    def all_of(kind: str) -> frozenset[str]:
        return frozenset(what for happening, what in happened if happening == kind)

    return Used(
        files=(all_of("read") - _notes.written) | files,
        named=frozenset(named),
        listed=all_of("listed") - _notes.written,
        looked=all_of("looked") - _notes.written,
        imports=frozenset(imports),
        variables=all_of("variable") - _notes.set,
        facts=all_of("fact"),
        fleeting=all_of("fleeting") | clock,
        unseen=all_of("unseen") | ({"a use that could not be noted"} if _notes.lost else set()),
    )


def imported_by(file: str) -> frozenset[str]:
    """Return the files that a file has imported in this process."""
    return frozenset(found.file for found in list(_notes.imports.get(file, {}).values()) if found.file)


def _closure(roots: set[str]) -> tuple[set[str], set[Import]]:
    """The files of these modules with all that they import, and what the user's among them asked for."""
    files: set[str] = set()
    imports: set[Import] = set()
    waiting = list(roots)
    while waiting:
        file = waiting.pop()
        if file in files:
            continue
        files.add(file)
        kind = kind_of(file)
        if kind in (PYTHON, OWN) or (kind == INSTALLED and _package_of(file) in EVERYWHERE):
            continue
        found = list(_notes.imports.get(file, {}).values())
        if kind == USER:
            imports.update(found)
            waiting += _held_by(file) if not found else []
        waiting += (entry.file for entry in found if entry.file)
    return files, imports


def _package_of(file: str) -> str:
    """The package or module that an installed file belongs to, by its place."""
    site = next((site for site in _sites if file.startswith(site)), None)
    if site is None:
        site = next(
            (f"{file.partition(part)[0]}{part}" for name in SITES if (part := f"{os.sep}{name}{os.sep}") in file), ""
        )
    return file[len(site) :].partition(os.sep)[0].partition(".")[0]


def _held_by(file: str) -> list[str]:
    """The files of modules that are held by one of which no import was seen, as it was loaded before all this."""
    module = next((module for module in list(sys.modules.values()) if _file_of(module) == file), None)
    held = []
    for value in list(vars(module).values()) if module is not None else ():
        owner = value if isinstance(value, ModuleType) else sys.modules.get(str(getattr(value, "__module__", None)))
        other = _file_of(owner)
        if other is not None and other != file:
            held.append(other)
    return held


def _reads_clock(file: str) -> bool:
    """Return whether a file has code that asks ``datetime``, whose methods cannot be replaced."""
    names = _notes.names.get(file, set())
    imports = {entry.name.partition(".")[0] for entry in _notes.imports.get(file, {}).values()}
    return "datetime" in imports and bool(names & {"now", "today", "utcnow"})


# ---- whose code it is ---------------------------------------------------------------------------------------


def kind_of(file: str) -> int:
    """Return whose code a file is: ``PYTHON``, ``INSTALLED``, ``OWN`` or ``USER``."""
    kind = _kinds.get(file)
    if kind is None:
        kind = _kinds[file] = _kind(file)
    return kind


def _kind(file: str) -> int:
    if file.startswith("<") or file == __file__:  # what stands around a call is nobody's
        return PYTHON
    known = _kind_by_place(file)
    if known == USER:
        real = os.path.realpath(file)
        if real != file:
            return _kind_by_place(real)
    return known


def _kind_by_place(file: str) -> int:
    if file.startswith(HOME + os.sep):
        return OWN
    if file.startswith(_sites) or any(f"{os.sep}{name}{os.sep}" in file for name in SITES):
        return INSTALLED
    return PYTHON if file.startswith(_python) else USER


def is_of_a_library(value: Any) -> bool:
    """Return whether a function, a class or an object of a class is of Python or of a package that is installed."""
    name = str(value.__module__ if hasattr(value, "__qualname__") else type(value).__module__)
    if name.partition(".")[0] in sys.stdlib_module_names:
        return True
    file = file_of(name)
    return file is not None and kind_of(file) != USER


def is_site(place: str) -> bool:
    """Return whether distributions are installed in a folder."""
    return f"{place}{os.sep}" in _sites


def _is_site(place: str) -> bool:
    """Return whether distributions are installed in a folder of ``sys.path``."""
    if os.path.basename(place) in SITES:  # noqa: PTH119
        return True
    try:
        with os.scandir(place) as entries:
            return any(entry.name.endswith(".dist-info") for entry in entries)
    except OSError:
        return False


def _user_at(frame: FrameType | None) -> str | None:
    """The user's file whose code is nearest, on whichever errand; None where this package comes first."""
    while frame is not None:
        name = frame.f_code.co_filename
        kind = kind_of(name)
        if kind == USER:
            return name
        if kind == OWN:
            return None
        frame = frame.f_back
    return None


def _itself(frame: FrameType | None) -> str | None:
    """The user's file whose code is nearest, with nothing but Python's library between; None for any other code."""
    while frame is not None:
        name = frame.f_code.co_filename
        kind = kind_of(name)
        if kind != PYTHON:
            return name if kind == USER else None
        frame = frame.f_back
    return None


def _asking(frame: FrameType | None) -> str | None:
    """The user's file that asks, itself or through Python's library or a package of its choice; "" where only such a
    package does; None for any other code, such as PyTorch's own."""
    found = None
    while frame is not None:
        name = frame.f_code.co_filename
        kind = kind_of(name)
        if kind == USER:
            return name
        if kind == OWN:
            return found
        if kind == INSTALLED:
            package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
            if package in _notes.base:
                return None
            found = ""
        frame = frame.f_back
    return found


def _note(kind: str, what: str, user: str | None) -> None:
    note = (kind, what)
    if _case is not None:
        own = _notes.of_cases[_case]
        before = len(own)
        own.add(note)
        if user:
            own.add(("by", user))
        _notes.count += len(own) - before
    if user:
        of_file = _notes.of_files.setdefault(user, set())
        before = len(of_file)
        of_file.add(note)
        _notes.count += len(of_file) - before


def count() -> int:
    """Return a number that is another one whenever something new was noted."""
    return _notes.count


# ---- events -------------------------------------------------------------------------------------------------

_LISTINGS = frozenset({"os.listdir", "os.scandir"})
_ELSEWHERE = {
    "subprocess.Popen": "another process", "os.system": "another process", "os.posix_spawn": "another process",
    "os.exec": "another process", "os.spawn": "another process", "socket.connect": "a connection",
    "socket.getaddrinfo": "a connection", "urllib.Request": "a connection", "os.fork": "another process",
    "os.forkpty": "another process",
}  # fmt: skip
_EVENTS = frozenset({"open", "import", "exec", "ctypes.dlopen", "sqlite3.connect", *_LISTINGS, *_ELSEWHERE})
_MEMORY = ("/proc/", "/sys/", "/dev/")


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in _EVENTS:
        return
    thread = get_ident()
    if thread in _within:
        return
    _within.add(thread)
    try:
        if event == "open":
            _opened(*arguments[:3])
        elif event == "exec":
            _executed(arguments[0])
        elif event == "import":
            if arguments[1] is not None:  # the shared object of a module
                _opened(arguments[1], "r", 0)
        elif event in ("ctypes.dlopen", "sqlite3.connect"):
            if arguments[0] is not None and os.sep in os.fsdecode(arguments[0]):
                _opened(arguments[0], "r", 0)
        elif event in _ELSEWHERE:
            user = _asking(sys._getframe(1))
            if user is not None:
                _note("unseen", _ELSEWHERE[event], user)
        else:
            frame = sys._getframe(1)
            if not frame.f_code.co_filename.startswith("<frozen importlib"):
                user = _user_at(frame)
                if user is not None:
                    _note("listed", _absolute(arguments[0] if arguments[0] is not None else "."), user)
    except (TypeError, ValueError):  # arguments that the function itself refuses: nothing is used
        return
    except Exception:  # whatever a path of the user's raises: the use is lost, and so no result is kept
        _notes.lost = True
    finally:
        _within.discard(thread)


_WRITING = os.O_WRONLY | os.O_RDWR


def _opened(path: Any, mode: str | None, flags: int | None) -> None:
    if isinstance(path, int):
        return
    frame = sys._getframe(2)
    name = _absolute(path)
    if isinstance(flags, int) and flags & _WRITING and not (mode and mode.startswith("r")):
        if _case is not None and (not os.path.exists(name) or flags & os.O_TRUNC):  # noqa: PTH110
            _notes.written.add(name)
        return
    if name.startswith(_MEMORY):
        # packages look at the host as they are imported, as psutil does at /proc/stat, and few results depend on it
        user = _asking(frame) if name == "/proc/cpuinfo" else _itself(frame)
        if user is not None and not name.startswith("/dev/null"):
            _note("fact" if name == "/proc/cpuinfo" else "fleeting", "cpu" if "cpuinfo" in name else name, user)
        return
    importing = frame.f_code.co_filename.startswith("<frozen importlib")
    if importing and kind_of(name) != USER:
        return  # imports say what is loaded of distributions
    if "<" in name or "__editable__" in name or frame.f_globals.get("__name__") == "tokenize":
        return  # lines of source for a traceback
    user = _user_at(frame)
    if user is None and kind_of(name) != USER:
        return
    if user is not None and not os.fsdecode(path).startswith(os.sep):
        _note("fact", "cwd", user)
    _note("read", source_of(name), user)


def source_of(file: str) -> str:
    """Return the source that a compiled file is made of, where it is there; any other file as it is."""
    if not file.endswith(".pyc"):
        return file
    try:
        source = importlib.util.source_from_cache(file)
    except (ValueError, NotImplementedError):
        return file
    return source if os.path.isfile(source) else file  # noqa: PTH113


def _absolute(path: Any) -> str:
    name = os.fsdecode(path)
    if not name.startswith(os.sep):
        name = os.path.join(_getcwd(), name)  # noqa: PTH118
    return os.path.normpath(name)


def _executed(code: Any) -> None:
    if not isinstance(code, CodeType) or kind_of(code.co_filename) != USER:
        return
    names = _notes.names.setdefault(code.co_filename, set())
    waiting = [code]
    while waiting:
        part = waiting.pop()
        names.update(part.co_names)
        waiting += [constant for constant in part.co_consts if isinstance(constant, CodeType)]


# ---- imports ------------------------------------------------------------------------------------------------

_import = builtins.__import__
_import_module = importlib.import_module
_find_spec = importlib.util.find_spec
_getcwd = os.getcwd


def _watch_imports() -> None:
    def import_noted(
        name: str,
        globals: Any = None,
        locals: Any = None,
        fromlist: Any = (),
        level: int = 0,
    ) -> Any:
        key: Any = None
        try:
            by = None if globals is None else globals.get("__file__")
            key = (by, name, fromlist, level) if isinstance(by, str) else None
            if key in _seen:
                key = None
        except Exception:  # globals or names of the user's that cannot be read or hashed: Python's import says so
            key = None
        if key is None:
            return _import(name, globals, locals, fromlist, level)
        try:
            return _import(name, globals, locals, fromlist, level)
        finally:
            _seen.add(key)
            _imported(key[0], name, globals, fromlist, level)

    def import_module_noted(name: str, package: str | None = None) -> ModuleType:
        by = _user_at(sys._getframe(1))
        try:
            return _import_module(name, package)
        finally:
            if by is not None:
                _imported(by, name.lstrip("."), {"__package__": package}, (), len(name) - len(name.lstrip(".")))

    def find_spec_noted(name: str, package: str | None = None) -> Any:
        by, found = _user_at(sys._getframe(1)), None
        try:
            found = _find_spec(name, package)
            return found
        finally:
            if by is not None:
                with contextlib.suppress(Exception):
                    file = None if found is None else found.origin if found.has_location else ""
                    entry = Import(name, file and source_of(file), _places(name))
                    _notes.imports.setdefault(source_of(by), {})[name, entry.file] = entry
                    _notes.count += 1

    find_spec_noted.__module__, find_spec_noted.__name__ = "importlib.util", "find_spec"
    find_spec_noted.__qualname__ = "find_spec"
    importlib.util.find_spec = find_spec_noted
    builtins.__import__ = import_noted
    import_module_noted.__module__, import_module_noted.__name__ = "importlib", "import_module"
    import_module_noted.__qualname__ = "import_module"
    importlib.import_module = import_module_noted


def _imported(by: str, name: str, globals: Any, fromlist: Iterable[str] | None, level: int) -> None:
    """Note what a file's import asked for: each module of the path, and modules among the names taken from it."""
    with contextlib.suppress(Exception):
        if name.partition(".")[0] == "safetensors":
            for owner, reader in _READERS.items():
                _watch_reader(sys.modules.get(owner), reader)
        by = source_of(by)
        if level:
            package = str(globals.get("__package__") or "").rsplit(".", level - 1)[0]
            name = f"{package}.{name}" if name else package
        if name == "__main__":  # the program that this process is, and nothing of a case's
            return
        names = [name[:end] for end in range(1, len(name) + 1) if end == len(name) or name[end] == "."]
        for part in fromlist or ():
            inside = f"{name}.{part}"
            if inside in sys.modules or not hasattr(sys.modules.get(name), part):
                names.append(inside)
        kept = _notes.imports.setdefault(by, {})
        for full in names:
            module = sys.modules.get(full)
            file = None if module is None else _file_of(module) or ""
            if (full, file) not in kept:
                _notes.count += 1
                kept[full, file] = Import(full, file, _places(full) if kind_of(by) == USER else ())


def _places(name: str) -> tuple[str, ...]:
    """The folders in which a module of that name is looked for."""
    above = name.rpartition(".")[0]
    places: Any = sys.path if not above else getattr(sys.modules.get(above), "__path__", ())
    return tuple(_absolute(place or ".") for place in places if "__editable__" not in place)


def file_of(name: str) -> str | None:
    """Return the source of a module that is loaded; None for any other, and for one without a file."""
    return _file_of(sys.modules.get(name))


def _file_of(module: Any) -> str | None:
    """The source of a module, from what it says of itself; its properties are not asked, which may import more."""
    said = getattr(module, "__dict__", None)
    file = said.get("__file__") if isinstance(said, dict) else None
    return source_of(file) if isinstance(file, str) else None


# ---- what raises no event -----------------------------------------------------------------------------------


def _watch_variables() -> None:
    environ: Any = type(os.environ)
    getitem, iterate, setitem = environ.__getitem__, environ.__iter__, environ.__setitem__

    def __getitem__(self: Any, key: Any) -> Any:
        _read_variable(key)
        return getitem(self, key)

    def __iter__(self: Any) -> Any:
        _read_variable("*")
        return iterate(self)

    def __setitem__(self: Any, key: Any, value: Any) -> None:
        with contextlib.suppress(Exception):
            if (
                _case is not None
                and _user_at(sys._getframe(1)) is not None
                and ("variable", key) not in _notes.of_cases.get(_case, ())
            ):
                _notes.set.add(os.fsdecode(key))
        setitem(self, key, value)

    for function in (__getitem__, __iter__, __setitem__):
        setattr(environ, function.__name__, function)


def _read_variable(key: Any) -> None:
    with contextlib.suppress(Exception):
        user = _asking(sys._getframe(2))
        if user is not None:
            _note("variable", os.fsdecode(key), user)


class _Noted:
    """A function in place of one of Python's own: it calls that one, and notes who asks.

    No function of Python, as these would become methods where they are attributes of a class. Equal to the original,
    which sets such as ``os.supports_fd`` hold.
    """

    def __init__(self, original: Any, note: Callable[[FrameType, tuple[Any, ...]], None], module: str) -> None:
        """``module`` is that in whose namespace it is, by which it is pickled."""
        self.__wrapped__ = original
        self._note = note
        for name in ("__name__", "__qualname__", "__doc__", "__text_signature__"):
            with contextlib.suppress(AttributeError, TypeError):
                setattr(self, name, getattr(original, name))
        self.__module__ = module

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        thread = get_ident()
        if thread not in _within:
            _within.add(thread)
            try:
                self._note(sys._getframe(1), arguments)
            except (TypeError, ValueError):  # arguments that the function itself refuses: nothing is used
                pass
            except Exception:  # whatever a path of the user's raises: the use is lost, and so no result is kept
                _notes.lost = True
            finally:
                _within.discard(thread)
        return self.__wrapped__(*arguments, **keywords)

    def __eq__(self, other: object) -> bool:
        return other is self or other is self.__wrapped__

    def __hash__(self) -> int:
        return hash(self.__wrapped__)

    def __reduce__(self) -> str:
        return str(self.__name__)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return repr(self.__wrapped__)


def _replace(module: Any, name: str, kind: str, what: str, *, through: frozenset[str] | None = None) -> None:
    """``through``: only the user's own calls count, and those through these modules; None for all of the library."""
    original = getattr(module, name, None)
    if original is None or isinstance(original, _Noted):
        return

    def note(frame: FrameType, arguments: tuple[Any, ...]) -> None:
        caller: FrameType | None = frame
        if through is not None:
            while caller is not None and caller.f_globals.get("__name__") in through:
                caller = caller.f_back
            if caller is None or kind_of(caller.f_code.co_filename) != USER:
                return
        user = _asking(caller)
        if user is not None:
            _note(kind, what, user)

    setattr(module, name, _Noted(original, note, module.__name__))


_READERS = {"safetensors": "safe_open", "safetensors.numpy": "safe_open", "safetensors.torch": "safe_open"}
"""By module its functions of compiled code that open a file by its path."""


def _watch_reader(module: Any, name: str) -> None:
    original = getattr(module, name, None)
    if original is None or isinstance(original, _Noted):
        return

    def note(frame: FrameType, arguments: tuple[Any, ...]) -> None:
        if arguments:
            user = _user_at(frame)
            _note("read", _absolute(arguments[0]), user)

    setattr(module, name, _Noted(original, note, module.__name__))


_PATHS = frozenset({"posixpath", "genericpath", "os", "pathlib"})
_LINES = frozenset({"inspect", "linecache", "tokenize"})
"""Modules that look for lines of source, for messages alone."""


def _note_status(frame: FrameType, arguments: tuple[Any, ...]) -> None:
    if not arguments or isinstance(arguments[0], int):
        return
    path = os.fsdecode(arguments[0])
    if "<" in path or "__editable__" in path:
        return
    path = _absolute(path)
    caller: FrameType | None = frame
    while caller is not None and caller.f_globals.get("__name__") in _PATHS:
        caller = caller.f_back
    if caller is not None and caller.f_globals.get("__name__") in _LINES:
        return
    # PyTorch looks whether a file is there before its compiled code opens it
    user = _asking(frame) or (_user_at(frame) if kind_of(path) == USER else None)
    if user:
        _note("looked", path, user)


def _note_uname(frame: FrameType, arguments: tuple[Any, ...]) -> None:
    """Note the platform, and the host's name where the user's own code asks: that is another in each container."""
    user = _asking(frame)
    if user is not None:
        _note("fact", "platform", user)
    if frame.f_globals.get("__name__") != "platform":  # which asks for all and keeps it, whatever it was asked
        own = _itself(frame)
        if own is not None:
            _note("fact", "host name", own)


def _watch_functions() -> None:
    import locale
    import platform
    import random
    import socket
    import tempfile
    import time

    for name in ("stat", "lstat", "access", "readlink"):
        setattr(os, name, _Noted(getattr(os, name), _note_status, "os"))
    asked: Any
    for asked in (os, platform):
        asked.uname = _Noted(asked.uname, _note_uname, asked.__name__)
    facts = {
        "cwd": [(os, "getcwd"), (os, "getcwdb")],
        "host name": [(socket, "gethostname"), (socket, "getfqdn"), (platform, "node")],
        "cores": [(os, "cpu_count"), (os, "sched_getaffinity"), (os, "process_cpu_count")],
        "platform": [
            (platform, name)
            for name in (
                "platform", "machine", "processor", "release", "system", "version", "architecture", "libc_ver",
            )
        ],
        "locale": [
            (locale, name)
            for name in ("setlocale", "getlocale", "localeconv", "getpreferredencoding", "getdefaultlocale")
        ],
        "user": [(os, name) for name in ("getlogin", "getuid", "geteuid", "getgid")],
    }  # fmt: skip
    for what, functions in facts.items():
        for module, name in functions:
            _replace(module, name, "fact", what)
    for name in ("gettempdir", "gettempdirb", "mkdtemp", "mkstemp"):
        _replace(tempfile, name, "variable", "TMPDIR")
    clock = ("time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time")
    for name in (*clock, "process_time_ns", "localtime", "gmtime", "ctime", "asctime", "strftime"):
        _replace(time, name, "fleeting", "the clock", through=frozenset())
    for name in ("getpid", "times", "getloadavg"):
        _replace(os, name, "fleeting", f"os.{name}", through=frozenset())
    chance = frozenset({"random", "secrets", "uuid"})
    _replace(os, "urandom", "fleeting", "random numbers of the system", through=chance)
    _replace(random, "_urandom", "fleeting", "random numbers of the system", through=chance)
