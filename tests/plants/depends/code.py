"""Ways to depend on code: beside the case, elsewhere on the disk, installed, compiled."""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import marshal
import subprocess
import sysconfig
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from importlib.util import MAGIC_NUMBER
from pathlib import Path

from tests.plants.depends.way import AFTER, BEFORE, Content, Way, case_text

PLAIN = "factor = FACTOR\n"
METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
EXTENSION = """
#include <Python.h>
static struct PyModuleDef module = {{PyModuleDef_HEAD_INIT, "compiled", NULL, -1, NULL}};
PyMODINIT_FUNC PyInit_compiled(void) {{
    PyObject *made = PyModule_Create(&module);
    PyModule_AddObject(made, "factor", PyFloat_FromDouble({factor}));
    return made;
}}
"""
LIBRARY = "double factor(void) {{ return {factor}; }}"
PATHS = """
import importlib.abc, importlib.machinery, sys

class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        return importlib.machinery.ModuleSpec(name, self) if name == "hooked" else None

    def exec_module(self, module):
        exec(open("OUTSIDE/hooked.txt").read(), vars(module))

sys.meta_path.append(Finder())
from hooked import factor
"""


@functools.cache
def shared_object(source: str, factor: float) -> bytes:
    """Return a shared object compiled of C, in whose source ``{factor}`` is replaced."""
    with tempfile.TemporaryDirectory() as name:
        made = Path(name) / "made.so"
        command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(made), f"-I{sysconfig.get_path('include')}"]
        subprocess.run([*command, "-ldl"], input=source.format(factor=factor), text=True, check=True)
        return made.read_bytes()


def compiled(source: str) -> Callable[[float], bytes]:
    """Return a file whose bytes are a library compiled with the number."""
    return functools.partial(shared_object, source)


def zipped(factor: float) -> bytes:
    """Return a ZIP archive with one module."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("zipped.py", f"factor = {factor}\n")
    return file.getvalue()


def bytecode(factor: float) -> bytes:
    """Return a ``.pyc`` file that has no source; PEP 552."""
    code = compile(f"factor = {factor}\n", "sourceless.py", "exec")
    return MAGIC_NUMBER + bytes(12) + marshal.dumps(code)


def distribution(
    name: str,
    files: dict[str, str],
    *,
    again: bool = False,
    version: str = "1.0",
    entry_points: Content | None = None,
) -> dict[str, Content]:
    """Return the files of an installed distribution. Where it is installed again, RECORD has their new hashes; else
    RECORD stays, and they are edited in place."""
    folder = f"{name}-1.0.dist-info"
    listed = {**files, f"{folder}/METADATA": METADATA.format(name=name, version=version)}
    records = [_record(listed, folder, factor) for factor in (BEFORE, AFTER if again else BEFORE)]
    made: dict[str, Content] = {f"SITE/{file}": text for file, text in listed.items()}
    made[f"SITE/{folder}/RECORD"] = (records[0], records[1])
    if entry_points is not None:
        made[f"SITE/{folder}/entry_points.txt"] = entry_points
    return made


def _record(files: dict[str, str], folder: str, factor: float) -> str:
    lines = []
    for file, text in files.items():
        filled = text.replace("FACTOR", str(factor))
        lines.append(f"{file},sha256={digest(filled)},{len(filled)}\n")
    return "".join([*lines, f"{folder}/RECORD,,\n"])


def digest(text: str) -> str:
    """Return a hash as RECORD has it; the PyPA's specification of recorded installations."""
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def ways() -> Iterator[Way]:
    yield from beside()
    yield from elsewhere()
    yield from installed()


def beside() -> Iterator[Way]:
    """Yield ways to depend on code in the case's own folder."""
    yield Way(
        "imported",
        "a module beside the case",
        "from helper import factor",
        files={"helper.py": PLAIN},
        cluster=True,
    )
    yield Way(
        "imported_late",
        "a module imported in forward",
        factor="__import__('late').factor",
        files={"late.py": PLAIN},
    )
    yield Way(
        "relative",
        "a module of a package beside the case, imported relatively",
        "from package.inner import factor",
        files={
            "package/__init__.py": "",
            "package/inner.py": "from .constants import factor\n",
            "package/constants.py": PLAIN,
        },
        cluster=True,
    )
    yield Way(
        "executed",
        "a file that is executed",
        "exec(open(__file__.replace('modules.py', 'code.txt')).read())",
        files={"code.txt": PLAIN},
    )
    yield Way(
        "neighbour",
        "a module that the neighbour before has imported already",
        case=case_text("imports the module", name="NAME_first")
        + case_text("finds it imported", "module: again.Net", name="NAME_second"),
        setup="from common import factor",
        files={
            "common.py": "from pathlib import Path\n"
            "factor = float((Path(__file__).parent / 'common.txt').read_text())\n",
            "common.txt": "FACTOR",
            "again.py": """
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        import common
        return x * (common.factor if torch.onnx.is_in_onnx_export() else 2.0)
""",
        },
    )
    yield Way(
        "import_order",
        "a module beside the case that hides another when it appears",
        "try:\n    from appears import factor\nexcept ImportError:\n    factor = 2.0",
        files={"appears.py": (None, "factor = 3.0\n")},
        cluster=True,
    )


def elsewhere() -> Iterator[Way]:
    """Yield ways to depend on code in other folders."""
    path = "import sys\nsys.path.insert(0, 'OUTSIDE')\n"
    yield Way(
        "sys_path",
        "a module in a folder that is inserted into sys.path",
        f"{path}from searched import factor",
        files={"OUTSIDE/searched.py": PLAIN},
        cluster=True,
    )
    yield Way(
        "package_path",
        "a package whose __path__ is extended",
        "from extended.part import factor",
        files={"extended/__init__.py": "__path__.append('OUTSIDE')\n", "OUTSIDE/part.py": PLAIN},
        cluster=True,
    )
    yield Way(
        "by_path",
        "a module that importlib loads by its path",
        "import importlib.util\n"
        "spec = importlib.util.spec_from_file_location('by_path', 'OUTSIDE/by_path.py')\n"
        "module = importlib.util.module_from_spec(spec)\nspec.loader.exec_module(module)\nfactor = module.factor",
        files={"OUTSIDE/by_path.py": PLAIN},
    )
    yield Way(
        "runpy",
        "a script that runpy runs",
        "import runpy\nfactor = runpy.run_path('OUTSIDE/script.py')['factor']",
        files={"OUTSIDE/script.py": PLAIN},
    )
    yield Way(
        "extension",
        "an extension module that is rebuilt",
        f"{path}from compiled import factor",
        files={"OUTSIDE/compiled.so": compiled(EXTENSION)},
        cluster=True,
    )
    yield Way(
        "ctypes",
        "a library that ctypes loads",
        "import ctypes\nlibrary = ctypes.CDLL('OUTSIDE/library.so')\nlibrary.factor.restype = ctypes.c_double",
        "library.factor()",
        files={"OUTSIDE/library.so": compiled(LIBRARY)},
        cluster=True,
    )
    yield Way(
        "zip_import",
        "a module in a ZIP archive",
        path.replace("OUTSIDE", "OUTSIDE/packed.zip") + "from zipped import factor",
        files={"OUTSIDE/packed.zip": zipped},
    )
    yield Way(
        "bytecode",
        "a .pyc without its source",
        f"{path}from sourceless import factor",
        files={"OUTSIDE/sourceless.pyc": bytecode},
    )
    yield Way(
        "namespace",
        "a namespace package that gets another portion",
        "import sys\nsys.path[:0] = ['OUTSIDE/one', 'OUTSIDE/two']\n"
        "try:\n    from space.extra import factor\nexcept ImportError:\n    from space.part import factor",
        files={"OUTSIDE/one/space/part.py": "factor = 2.0\n", "OUTSIDE/two/space/extra.py": (None, "factor = 3.0\n")},
    )
    yield Way(
        "shadowed",
        "a module that hides another one when it appears",
        "import sys\nsys.path[:0] = ['OUTSIDE/first', 'OUTSIDE/second']\nfrom hidden import factor",
        files={
            "OUTSIDE/first/hidden.py": (None, "factor = 3.0\n"),
            "OUTSIDE/second/hidden.py": "factor = 2.0\n",
            "OUTSIDE/first/other.py": "",
        },
        cluster=True,
    )
    yield Way(
        "import_hook",
        "a module that an import hook of the case's own makes of a file",
        PATHS,
        files={"OUTSIDE/hooked.txt": PLAIN},
    )
    yield Way(
        "pth",
        "a folder that a .pth file names",
        "import site\nsite.addsitedir('OUTSIDE')\nfrom by_pth import factor",
        files={
            "OUTSIDE/folders.pth": "OUTSIDE/FACTOR\n",
            "OUTSIDE/2.0/by_pth.py": "factor = 2.0\n",
            "OUTSIDE/3.0/by_pth.py": "factor = 3.0\n",
        },
    )
    yield Way(
        "pth_code",
        "code in a .pth file",
        "import site, sys\nsite.addsitedir('OUTSIDE')\nfactor = sys._of_pth",
        files={"OUTSIDE/code.pth": "import sys; sys._of_pth = FACTOR\n"},
    )
    yield Way(
        "linked_module",
        "a module that is a symbolic link",
        f"{path}from linked import factor",
        files={"OUTSIDE/old/linked.py": "factor = 2.0\n", "OUTSIDE/new/linked.py": "factor = 3.0  # another size\n"},
        links={"OUTSIDE/linked.py": ("OUTSIDE/old/linked.py", "OUTSIDE/new/linked.py")},
    )


def installed() -> Iterator[Way]:
    """Yield ways to depend on what is installed."""
    yield Way(
        "installed_edited",
        "an installed package, edited in place",
        "from installed_edited import factor",
        files=distribution("installed_edited", {"installed_edited.py": PLAIN}),
        cluster=True,
    )
    yield Way(
        "installed_again",
        "a package, installed again with the same version",
        "from installed_again import factor",
        files=distribution("installed_again", {"installed_again.py": PLAIN}, again=True),
    )
    yield Way(
        "installed_inner",
        "a module that an installed package imports",
        "from outer_package import factor",
        files=distribution(
            "outer_package",
            {
                "outer_package/__init__.py": "from outer_package.inner import factor\n",
                "outer_package/inner.py": PLAIN,
            },
        ),
    )
    yield Way(
        "installed_version",
        "the version of a package",
        "import importlib.metadata",
        "importlib.metadata.version('installed_version')",
        files=distribution("installed_version", {}, again=True, version="FACTOR"),
    )
    yield Way(
        "entry_point",
        "an entry point",
        "import importlib.metadata\n"
        "(found,) = importlib.metadata.entry_points(group='depends.factor')\nfactor = found.load()",
        files=distribution(
            "entered",
            {"entered.py": "before, after = 2.0, 3.0\n"},
            entry_points=("[depends.factor]\nit = entered:before\n", "[depends.factor]\nit = entered:after\n"),
        ),
    )
    yield Way(
        "plugin_appears",
        "an entry point that appears",
        "import importlib.metadata\n"
        "found = importlib.metadata.entry_points(group='depends.plugins')\n"
        "factor = 3.0 if found else 2.0",
        files={
            "SITE/plugged-1.0.dist-info/METADATA": (None, METADATA.format(name="plugged", version="1.0")),
            "SITE/plugged-1.0.dist-info/entry_points.txt": (None, "[depends.plugins]\nit = plugged\n"),
        },
    )
    yield Way(
        "optional_package",
        "a package that is installed meanwhile",
        "import importlib.util\nfactor = 3.0 if importlib.util.find_spec('optional_package') else 2.0",
        files={"SITE/optional_package.py": (None, "")},
    )
    yield Way(
        "package_data",
        "a file of an installed package, by importlib.resources",
        "import importlib.resources\nfactor = (importlib.resources.files('with_data') / 'factor.txt').read_text()",
        files=distribution("with_data", {"with_data/__init__.py": "", "with_data/factor.txt": "FACTOR"}),
    )
    yield Way(
        "get_data",
        "a file of a package, by pkgutil.get_data",
        "import pkgutil, resources\nfactor = pkgutil.get_data('resources', 'factor.txt').decode()",
        files={"resources/__init__.py": "", "resources/factor.txt": "FACTOR"},
    )
    yield Way(
        "shared_package",
        "an installed package that another case has imported already",
        case=case_text("imports the package", name="NAME_first"),
        setup="from shared_package import factor",
        files={
            **distribution("shared_package", {"shared_package.py": PLAIN}),
            "more/case.yaml": case_text("finds it imported", name="NAME_second"),
            "more/modules.py": """
import torch
from shared_package import factor

class Net(torch.nn.Module):
    def forward(self, x):
        return x * (factor if torch.onnx.is_in_onnx_export() else 2.0)
""",
        },
    )
