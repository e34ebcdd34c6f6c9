"""Ways to depend on files of data."""

from __future__ import annotations

import io
import json
import os
import pickle
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from tests.plants.depends.code import compiled
from tests.plants.depends.way import Place, Way, case_text

HERE = "from pathlib import Path\nHERE = Path(__file__).parent\n"
READER = """
#include <stdio.h>
double read_it(const char *path) {{
    double value = 0;
    FILE *file = fopen(path, "r");
    if (file) {{ fscanf(file, "%lf", &value); fclose(file); }}
    return value;
}}
"""


def array_file(factor: float) -> bytes:
    file = io.BytesIO()
    np.save(file, np.full(3, factor))
    return file.getvalue()


def archive_of_arrays(factor: float) -> bytes:
    file = io.BytesIO()
    np.savez(file, factor=np.full(3, factor))
    return file.getvalue()


def tensors(factor: float) -> bytes:
    import torch

    file = io.BytesIO()
    torch.save({"factor": torch.tensor(factor)}, file)
    return file.getvalue()


def scripted(factor: float) -> bytes:
    import torch

    class Constant(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("factor", torch.tensor(factor))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    file = io.BytesIO()
    torch.jit.save(torch.jit.script(Constant()), file)
    return file.getvalue()


def safe_tensors(factor: float) -> bytes:
    import safetensors.numpy

    return safetensors.numpy.save({"factor": np.full(1, factor)})


def database(factor: float) -> bytes:
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "factors.db"
        connection = sqlite3.connect(file)
        connection.execute("create table factors (value real)")
        connection.execute("insert into factors values (?)", (factor,))
        connection.commit()
        connection.close()
        return file.read_bytes()


def doubles(factor: float) -> bytes:
    return np.full(3, factor).tobytes()


def pickled(factor: float) -> bytes:
    return pickle.dumps({"factor": factor})


def reading(
    name: str, what: str, imports: str, factor: str, content: Callable[[float], bytes] | str, **more: bool
) -> Way:
    """Return a way that reads one file beside the case, which is called as the way."""
    return Way(name, what, f"{imports}\n{HERE}FILE = HERE / '{name}'\n", factor, {name: content}, **more)  # type: ignore[arg-type]


def ways() -> Iterator[Way]:
    yield from read()
    yield from looked_at()
    yield from kept()
    yield from unseen()


def read() -> Iterator[Way]:
    """Yield files in all kinds of formats."""
    yield reading("text", "a text file, read in forward", "", "FILE.read_text()", "FACTOR")
    yield reading("npy", "a NumPy array", "import numpy as np", "np.load(FILE)[0]", array_file)
    yield reading(
        "npz", "an archive of NumPy arrays", "import numpy as np", "np.load(FILE)['factor'][0]", archive_of_arrays
    )
    yield reading(
        "mapped",
        "a NumPy array, mapped into memory",
        "import numpy as np",
        "np.load(FILE, mmap_mode='r')[0]",
        array_file,
    )
    yield reading("memmap", "np.memmap of a raw file", "import numpy as np", "np.memmap(FILE, 'f8', 'r')[0]", doubles)
    yield reading("fromfile", "np.fromfile of a raw file", "import numpy as np", "np.fromfile(FILE)[0]", doubles)
    yield reading("torch_load", "tensors, by torch.load", "", "torch.load(FILE)['factor']", tensors)
    yield reading(
        "torch_mapped", "tensors, by torch.load with mmap", "", "torch.load(FILE, mmap=True)['factor']", tensors
    )
    yield reading(
        "from_file",
        "a tensor, by torch.from_file",
        "",
        "torch.from_file(str(FILE), size=3, dtype=torch.float64)[0]",
        doubles,
    )
    yield reading(
        "jit_load", "a scripted module, by torch.jit.load", "NET = None", "torch.jit.load(str(FILE)).factor", scripted
    )
    yield reading(
        "safetensors",
        "tensors, by safetensors",
        "import safetensors.numpy",
        "safetensors.numpy.load_file(FILE)['factor'][0]",
        safe_tensors,
    )
    yield reading("yaml", "a YAML file", "import yaml", "yaml.safe_load(FILE.open())['factor']", "factor: FACTOR\n")
    yield reading(
        "json",
        "a JSON file",
        "import json",
        "json.loads(FILE.read_bytes())['factor']",
        lambda factor: json.dumps({"factor": factor}).encode(),
    )
    yield reading(
        "toml", "a TOML file", "import tomllib", "tomllib.load(FILE.open('rb'))['factor']", "factor = FACTOR\n"
    )
    yield reading("csv", "a CSV file", "import csv", "next(csv.reader(FILE.open()))[1]", "factor,FACTOR\n")
    yield reading(
        "ini",
        "an INI file, by configparser",
        "import configparser\nPARSER = configparser.ConfigParser()",
        "PARSER.read(FILE) and PARSER['a']['factor']",
        "[a]\nfactor = FACTOR\n",
    )
    yield reading("pickle", "a pickle", "import pickle", "pickle.loads(FILE.read_bytes())['factor']", pickled)
    yield reading(
        "sqlite",
        "an SQLite database",
        "import sqlite3",
        "sqlite3.connect(FILE).execute('select value from factors').fetchone()[0]",
        database,
    )
    yield reading(
        "descriptor",
        "a file, by os.open and os.read",
        "import os",
        "os.read(os.open(FILE, os.O_RDONLY), 9).decode()",
        "FACTOR",
    )
    yield Way(
        "mmap",
        "a file, by mmap",
        f"{HERE}import mmap\n\ndef ask():\n    with open(HERE / 'a.txt', 'r+b') as file:\n"
        "        return bytes(mmap.mmap(file.fileno(), 0))",
        "ask()",
        files={"a.txt": "FACTOR"},
    )
    yield Way(
        "read_on_import",
        "a text file, read when the module is imported",
        f"{HERE}factor = (HERE / 'a.txt').read_text()",
        files={"a.txt": "FACTOR"},
    )
    yield Way(
        "thread",
        "a file that a thread reads",
        f"{HERE}from concurrent.futures import ThreadPoolExecutor\n\n"
        "def ask():\n    with ThreadPoolExecutor(1) as pool:\n"
        "        return pool.submit((HERE / 'a.txt').read_text).result()",
        "ask()",
        files={"a.txt": "FACTOR"},
    )
    yield Way(
        "outside",
        "a file in another folder",
        factor="open('OUTSIDE/a.txt').read()",
        files={"OUTSIDE/a.txt": "FACTOR"},
        cluster=True,
    )
    yield Way(
        "same_times",
        "a file that is replaced by one of the same size and time",
        f"{HERE}",
        "(HERE / 'a.txt').read_text()",
        files={"a.txt": "FACTOR"},
        turn=_set_times,
    )
    yield Way(
        "in_draw",
        "a file that the function under draw reads",
        python=f"""
import numpy as np
import torch
{HERE}

class Net(torch.nn.Module):
    def forward(self, x):
        return x.clamp(max=10.0) if torch.onnx.is_in_onnx_export() else x * 1.0

def draw(dims, rng):
    size = float((HERE / "a.txt").read_text())
    return {{"x": rng.uniform(0, 4 if size == 2.0 else 100, size=(dims["n"], 3)).astype(np.float32)}}
""",
        more="draw: modules.draw",
        files={"a.txt": "FACTOR"},
    )
    yield Way(
        "weights",
        "weights that a prepare function loads for the export",
        python=f"""
import torch
{HERE}

class Net(torch.nn.Module):
    def forward(self, x):
        return x * (self.factor if torch.onnx.is_in_onnx_export() else 2.0)

def prepare(module):
    module.factor = float((HERE / "a.txt").read_text())
""",
        more="prepare: modules.prepare",
        files={"a.txt": "FACTOR"},
    )
    yield Way(
        "calibration",
        "a file that the calibration data function reads",
        python=f"""
import numpy as np
import torch
{HERE}

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 4)

    def forward(self, x):
        return self.layer(x)

def data(*arguments):
    size = 1.0 if float((HERE / "a.txt").read_text()) == 2.0 else 0.001
    generator = np.random.default_rng(0)
    return [{{"x": (size * generator.normal(size=(4, 3))).astype(np.float32)}} for _ in range(4)]
""",
        more="precisions: {int8: {calibration: {data: modules.data}}}",
        files={"a.txt": "FACTOR"},
    )


def looked_at() -> Iterator[Way]:
    """Yield what is looked at without being read: folders, links, whether a file is there."""
    two = {"parts/one.txt": "", "parts/two.txt": (None, "")}
    yield Way("glob", "a folder in which a glob finds another file", HERE, "1 + len(list(HERE.glob('parts/*')))", two)
    yield Way(
        "listdir",
        "a folder that os.listdir lists",
        f"{HERE}import os",
        "1 + len(os.listdir(HERE / 'parts'))",
        two,
    )
    yield Way(
        "walk",
        "a folder that os.walk goes through",
        f"{HERE}import os",
        "1 + sum(len(files) for _, _, files in os.walk(HERE / 'parts'))",
        {"parts/one.txt": "", "parts/below/three.txt": (None, "")},
    )
    yield Way(
        "taken_out",
        "a file of a folder that is taken out",
        HERE,
        "2 + 2 - len(list(HERE.glob('parts/*')))",
        {"parts/one.txt": "", "parts/two.txt": ("", None)},
    )
    appears = {"a.txt": (None, "")}
    yield Way("exists", "whether a file is there", HERE, "3.0 if (HERE / 'a.txt').exists() else 2.0", appears)
    yield Way(
        "isfile",
        "os.path.isfile of a file that appears",
        f"{HERE}import os",
        "3.0 if os.path.isfile(HERE / 'a.txt') else 2.0",
        appears,
    )
    yield Way(
        "access",
        "os.access of a file that appears",
        f"{HERE}import os",
        "3.0 if os.access(HERE / 'a.txt', os.R_OK) else 2.0",
        appears,
    )
    yield Way(
        "absent",
        "a file that is opened in vain, and appears",
        f"{HERE}\n\ndef ask():\n    try:\n        return (HERE / 'a.txt').read_text()\n"
        "    except FileNotFoundError:\n        return 2.0",
        "ask()",
        {"a.txt": (None, "3.0")},
    )
    yield Way("stat", "the size of a file", HERE, "(HERE / 'a.txt').stat().st_size", {"a.txt": ("12", "123")})
    yield Way(
        "link",
        "a symbolic link that is pointed elsewhere",
        HERE,
        "(HERE / 'link').read_text()",
        {"two.txt": "2.0", "three.txt": "3.0"},
        {"link": ("two.txt", "three.txt")},
    )
    yield Way(
        "link_of_folder",
        "a symbolic link of a folder that is pointed elsewhere",
        HERE,
        "(HERE / 'link' / 'a.txt').read_text()",
        {"two/a.txt": "2.0", "three/a.txt": "3.0"},
        {"link": ("two", "three")},
    )
    yield Way(
        "readlink",
        "the target of a symbolic link",
        f"{HERE}import os",
        "3.0 if os.readlink(HERE / 'link').endswith('three') else 2.0",
        links={"link": ("two", "three")},
    )


def kept() -> Iterator[Way]:
    """Yield what is read once in a process and used again by what comes later."""
    yield Way(
        "cached",
        "a file that is read for the first opset and kept for the second",
        f"{HERE}import functools\n\n@functools.cache\ndef ask():\n    return (HERE / 'a.txt').read_text()",
        "ask()",
        {"a.txt": "FACTOR"},
        case=case_text("two opsets", export="{torchscript: [16, 17]}"),
    )


def unseen() -> Iterator[Way]:
    """Yield what is read where Python does not see it; declared with ``depends`` where that is possible."""
    yield Way(
        "c_file",
        "a file that C code reads",
        f"{HERE}import ctypes\nlibrary = ctypes.CDLL('OUTSIDE/reader.so')\nlibrary.read_it.restype = ctypes.c_double",
        "library.read_it(bytes(HERE / 'a.txt'))",
        {"OUTSIDE/reader.so": compiled(READER), "a.txt": "FACTOR"},
        more="depends: a.txt",
        unobservable="C code opens the file",
    )
    yield Way(
        "subprocess",
        "what another program prints of a file",
        f"{HERE}import subprocess",
        "subprocess.check_output(['cat', HERE / 'a.txt'])",
        {"a.txt": "FACTOR"},
        more="depends: a.txt",
        unobservable="another program reads the file",
    )
    yield Way(
        "forked",
        "a file that a forked process reads",
        f"{HERE}import multiprocessing\n\n"
        "def ask():\n    with multiprocessing.get_context('fork').Pool(1) as pool:\n"
        "        return pool.apply((HERE / 'a.txt').read_text)",
        "ask()",
        {"a.txt": "FACTOR"},
        more="depends: a.txt",
        unobservable="another process reads the file",
    )


def _set_times(place: Place, changed: bool) -> None:
    os.utime(place.case / "a.txt", (1_700_000_000, 1_700_000_000))
