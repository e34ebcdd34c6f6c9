"""Writes down what a compiled Python package offers, so that the double of it in ``tests/doubles`` is held to that.

    python tests/doubles/bindings.py tensorrt tests/doubles/tensorrt-8.6.json

Under a Python that has the real package, which needs nothing else; git diff compares.

A class is written with its base, constructors and methods (one line for each overload, as the binding declares it),
properties, constants and enum members; a module with its functions and constants. Nothing is called but ``repr`` and
``int``. Neither addresses nor paths of a machine are kept.

``--placeholders`` records a binding whose own libraries are not there: it lets a C compiler make empty libraries with
the missing names, which is enough to import the binding and for nothing else. TensorRT 10.12 and 11.0 were recorded
so from the unpacked wheels of ``tensorrt-cu12-bindings`` (module ``tensorrt_bindings``), and pycuda without a driver;
TensorRT 8.6.0 with its own libraries. Of cuda-python, which needs no driver to be imported, what
``conformance/runtimes/tensorrt/cuda_python.py`` could use:

    python tests/doubles/bindings.py cuda.bindings.driver tests/doubles/cuda_python.json --only '(?x)
        ^cu(Init|GetErrorString|DriverGetVersion|DeviceTotalMem|DevicePrimaryCtxRetain|MemFreeHost|MemHostAlloc)$
        | ^cu(DeviceGet(Count|Name|Attribute)?|Ctx(PushCurrent|PopCurrent|GetCurrent|Synchronize)|Mem(Alloc|Free))$
        | ^cu(Memcpy(HtoD|DtoH)Async|(Stream|Event)(Create|Destroy|Synchronize)|Event(Record|ElapsedTime))$
        | ^CU(result|device|device_attribute|deviceptr|context|stream|event)$'
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import importlib.util
import inspect
import json
import re
import subprocess
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# What every Python object has, and what belongs to the binding library.
COMMON = {*dir(type("Plain", (), {})), "__del__", "__getstate__", "__setstate__", "__instance_size__", "__slots__",
          "__safe_for_unpickling__", "__singletons__"} - {"__init__", "__eq__"}  # fmt: skip
ENUM = {"__eq__", "__index__", "__init__", "__int__", "__invert__", "name", "value", "names", "values",
        *(f"__{r}{name}__" for r in ("", "r") for name in ("and", "or", "xor")), "__ge__", "__gt__", "__le__",
        "__lt__", "__members__"}  # fmt: skip


def record(module: types.ModuleType, version: str, only: str = "") -> dict[str, Any]:
    """Everything public in a module, by kind and sorted; ``only`` what a regular expression fits."""
    classes: dict[str, Any] = {}
    functions: dict[str, Any] = {}
    constants: dict[str, str] = {}
    own = module.__name__.split(".")[0]
    for name, value in sorted(vars(module).items()):
        if name.startswith("_") or isinstance(value, types.ModuleType) or not re.search(only, name):
            continue
        if isinstance(value, type) and value.__module__.split(".")[0] in (own, "pybind11_builtins"):
            for path, one in _nested(value, name):
                classes[path] = _class(one, path)
        elif callable(value):
            if (getattr(value, "__module__", None) or own).split(".")[0] == own:
                functions[name] = _signatures(value, name)
        elif type(value).__module__.split(".")[0] == own:
            constants[name] = _plain(repr(value))
    return {
        "module": "tensorrt" if module.__name__.startswith("tensorrt") else module.__name__,
        "version": version,
        "constants": constants,
        "functions": functions,
        "classes": dict(sorted(classes.items())),
    }


def _nested(cls: type, path: str) -> Iterator[tuple[str, type]]:
    yield path, cls
    for name, value in sorted(vars(cls).items()):
        if isinstance(value, type) and value.__qualname__ == f"{path}.{name}":
            yield from _nested(value, f"{path}.{name}")


def _class(cls: type, path: str) -> dict[str, Any]:
    members = getattr(cls, "__members__", None) or getattr(cls, "names", None)  # pybind11's, Boost.Python's
    members = {name: int(value) for name, value in members.items()} if isinstance(members, dict) else {}
    methods: dict[str, Any] = {}
    properties: dict[str, Any] = {}
    constants: dict[str, str] = {}
    for name, value in sorted(vars(cls).items()):
        if name in COMMON or name in members or (members and name in ENUM):
            continue
        if name.startswith("__pybind11") or (name.startswith("_") and not name.endswith("__")):
            continue
        if value is None or (isinstance(value, type) and value.__qualname__ == f"{path}.{name}"):
            continue
        if isinstance(value, type):
            constants[name] = value.__qualname__  # another class's, as Logger.Severity is ILogger.Severity
        elif (
            isinstance(value, property) or inspect.isgetsetdescriptor(value) or "static_property" in str(type(value))
        ):
            properties[name] = _property(value)
        elif name == "__init__" and isinstance(value, types.WrapperDescriptorType):
            continue  # pybind11's way to say that there is no constructor
        elif isinstance(value, staticmethod):
            methods[name] = [f"static {one}" for one in _signatures(value.__func__, name)]
        elif callable(value):
            methods[name] = _signatures(value, name)
        else:
            constants[name] = _plain(repr(value))
    base = next((one for one in cls.__bases__ if one.__module__ == cls.__module__), None)
    found: dict[str, Any] = {"base": base.__qualname__} if base else {}
    if members:
        found |= {"members": members, "ordered": "__lt__" in vars(cls)}
    kinds = {"constants": constants, "methods": methods, "properties": properties}
    return found | {kind: one for kind, one in kinds.items() if one}


def _property(value: Any) -> str:
    """The type where the binding tells it, and what can be done: "int", "int, readonly", "int, writeonly"."""
    fget, fset = getattr(value, "fget", value), getattr(value, "fset", None)
    told = re.search(r"\) -> ([^\n]+)", getattr(fget, "__doc__", None) or "")
    told = told or re.search(r"arg1: (.+)\) -> None", getattr(fset, "__doc__", None) or "")
    kind = _plain(told[1]) if told else "object"
    return kind if fget and fset else f"{kind}, {'readonly' if fget else 'writeonly'}"


def _signatures(function: Any, name: str) -> list[str]:
    """Each overload as ``(parameters) -> result``; ``(...)`` where the binding does not tell."""
    if isinstance(function, (types.FunctionType, classmethod)):
        return [_plain(str(inspect.signature(getattr(function, "__func__", function))))]
    text = function.__doc__ or ""
    # Boost.Python: "name( (Class)self, (int)bytes [, (int)flags=0]) -> int :"
    boost = re.findall(rf"^{re.escape(name)}\((.*)\) -> (\w+) :$", text, re.MULTILINE)
    if boost:
        return [f"({_boost(parameters)}) -> {result}" for parameters, result in boost]
    # pybind11: "name(self: module.Class, flags: int = 0) -> int", numbered where overloaded.
    found = re.findall(rf"^(?:\d+\. )?{re.escape(name)}(\(.*\) -> .*)$", text, re.MULTILINE)
    return [_plain(one) for one in found] or [_cython(text, name)]


def _cython(text: str, name: str) -> str:
    """Return what Cython puts first into a docstring, and NumPy's section on results, as in cuda-python:
    ``cuMemAlloc(size_t bytesize)``, ``dptr : CUdeviceptr``. A parameter of C becomes an int."""
    first, _, rest = text.partition("\n")
    called = re.fullmatch(rf"{re.escape(name)}\((.*)\)", first)
    if called is None:
        return "(...)"
    taken = [re.sub(r"^(?:unsigned |long )*\w+ (\w+)$", r"\1: int", one) for one in called[1].split(", ") if one]
    returns = re.search(r"^Returns\n-+\n((?:.+\n?)*)", rest, re.MULTILINE)
    lines = [line for line in (returns[1].splitlines() if returns else ()) if not line.startswith(" ")]
    given = [re.sub(r".*?(\w+)`?$", r"\1", line) for line in lines] or ["CUresult"]
    return f"({', '.join(taken)}) -> tuple[{', '.join(given)}]"


def _boost(text: str) -> str:
    """``(int)bytes [, (int)flags=0]`` as ``bytes: int, flags: int = 0``; ``= ...`` where a default is not told."""
    parameters = []
    required, *optional = text.split("[")
    for index, part in enumerate((required, " ".join(optional).replace("]", ""))):
        for kind, name, default in re.findall(r"\((\w+)\)(\w+)(=[^,]+)?", part):
            default = f" = {default[1:].strip() or '...'}" if default else " = ..." if index else ""
            parameters.append(f"{name}: {kind}{default}")
    return ", ".join(parameters)


def _plain(text: str) -> str:
    """Types without their modules and C++ namespaces, values without addresses."""
    text = re.sub(r"<([\w.]+): -?\d+>", r"\1", text)
    text = re.sub(r"<[^<>]* at 0x[0-9a-f]+>", "<object>", text)
    text = re.sub(r"\b(?:nvinfer1|nvonnxparser|std)::(?:\(anonymous namespace\)::|v_\d_\d::)?", "", text)
    text = re.sub(r"\b(?:collections\.abc|typing(?:_extensions)?)\.", "", text)
    text = re.sub(r"\b(?:tensorrt(?:_bindings)?\.)+(?:tensorrt\.)?", "", text)
    return text.replace("::", ".").strip()


def written(value: Any, indent: str = "") -> str:
    """JSON with a line for each function, property and class constant."""
    line = json.dumps(value)
    members = isinstance(value, dict) and all(isinstance(one, int) for one in value.values())
    if not isinstance(value, dict) or members or len(indent + line) < 110:
        return line
    inner = indent + " "
    rows = (f"{inner}{json.dumps(key)}: {written(one, inner)}" for key, one in value.items())
    return "{\n" + ",\n".join(rows) + f"\n{indent}}}"


def load_placeholders(extension: Path, folder: Path) -> None:
    """Loads an empty library in place of each one that an extension module needs and that is not there."""
    table = subprocess.run(["readelf", "-W", "-d", extension], capture_output=True, text=True, check=True).stdout
    names = subprocess.run(["nm", "-D", "--undefined-only", extension], capture_output=True, text=True, check=True)
    missing = [one for one in re.findall(r" U (\w+)$", names.stdout, re.MULTILINE) if not one.startswith(("Py", "_"))]
    source = folder / "placeholder.c"
    source.write_text("".join(f"int {one}(void) {{ return 100; }}\n" for one in missing), encoding="utf-8")
    for library in re.findall(r"NEEDED.*\[(.+)\]", table):
        try:
            ctypes.CDLL(library)
        except OSError:
            target = folder / library
            command = ["cc", "-w", "-shared", "-fPIC", "-fno-builtin", f"-Wl,-soname,{library}"]
            subprocess.run([*command, source, "-o", target], check=True)
            ctypes.CDLL(str(target), mode=ctypes.RTLD_GLOBAL)


def _extension(name: str) -> Path:
    spec = importlib.util.find_spec(name.split(".")[0])
    if spec is None or spec.origin is None:
        raise SystemExit(f"record: this Python has no {name}")
    folder = Path(spec.origin).parent
    return next(one for one in sorted(folder.glob("*.so")) if one.name.startswith(("tensorrt", "_driver")))


def _version(name: str) -> str:
    package = importlib.import_module(name.rpartition(".")[0] or name)
    return str(getattr(package, "__version__", None) or package.VERSION_TEXT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", help="tensorrt, tensorrt_bindings, pycuda.driver or cuda.bindings.driver")
    parser.add_argument("file", type=Path, help="the recording")
    parser.add_argument("--placeholders", action="store_true", help="stand-ins for the libraries that are not there")
    parser.add_argument(
        "--only", metavar="REGEX", default="", help="the names to record, where all would be too many"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.placeholders:
            load_placeholders(_extension(options.module), Path(folder))
        found = record(importlib.import_module(options.module), _version(options.module), options.only)
    options.file.write_text(written(found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
