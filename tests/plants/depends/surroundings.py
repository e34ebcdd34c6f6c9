"""Ways to depend on what is around a process: variables, folders, the host, its clock, a network."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Iterator

from tests.plants.depends.code import PLAIN, compiled, distribution
from tests.plants.depends.way import Place, Way, case_text

SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/* Another host: its name, cores, clock and processor, as DEPENDS_HOST says: "name cores seconds cpuinfo". */
static char name[64];
static long cores = 0, later = 0;
static char processor[256];

__attribute__((constructor)) static void begin(void) {{
    const char *said = getenv("DEPENDS_HOST");
    if (said) sscanf(said, "%63s %ld %ld %255s", name, &cores, &later, processor);
}}

int gethostname(char *text, size_t size) {{
    static int (*real)(char *, size_t);
    if (!real) real = dlsym(RTLD_NEXT, "gethostname");
    if (!name[0]) return real(text, size);
    snprintf(text, size, "%s", name);
    return 0;
}}

int uname(struct utsname *found) {{
    static int (*real)(struct utsname *);
    if (!real) real = dlsym(RTLD_NEXT, "uname");
    int done = real(found);
    if (name[0]) snprintf(found->nodename, sizeof found->nodename, "%s", name);
    return done;
}}

long sysconf(int which) {{
    static long (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "sysconf");
    return which == _SC_NPROCESSORS_ONLN && cores ? cores : real(which);
}}

int clock_gettime(clockid_t which, struct timespec *found) {{
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int done = real(which, found);
    if (!done && which == CLOCK_REALTIME) found->tv_sec += later;
    return done;
}}

time_t time(time_t *found) {{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (found) *found = now.tv_sec;
    return now.tv_sec;
}}

static const char *place(const char *path) {{
    return processor[0] && !strcmp(path, "/proc/cpuinfo") ? processor : path;
}}

#include <fcntl.h>
#include <stdarg.h>
#define OPEN(open)                                                     \\
    int open(const char *path, int flags, ...) {{                      \\
        static int (*real)(const char *, int, ...);                    \\
        if (!real) real = dlsym(RTLD_NEXT, #open);                     \\
        va_list rest;                                                  \\
        va_start(rest, flags);                                         \\
        int mode = va_arg(rest, int);                                  \\
        va_end(rest);                                                  \\
        return real(place(path), flags, mode);                         \\
    }}
OPEN(open)
OPEN(open64)
/* {factor} */
"""
GETENV = "import ctypes\nlibrary = ctypes.CDLL(None)\nlibrary.getenv.restype = ctypes.c_char_p"
SYMBOLIC = case_text(
    "a symbolic of the case's own",
    "forward: torch.asinh(x)",
    export='{torchscript: {opsets: [17], symbolics: {"aten::asinh": modules.asinh}}}',
)
LATER = 40 * 86400
"""Seconds by which the clock of the second host is ahead."""
DEADLINE = 20 * 86400
"""Seconds after the first run at which cases that look at the clock change."""


def ways() -> Iterator[Way]:
    yield from variables()
    yield from variables_in_hooks()
    yield from of_the_host()
    yield from of_everything()
    yield from sound()


def variables() -> Iterator[Way]:
    """Yield ways to read a variable."""
    two = ("2.0", "3.0")
    appears = (None, "3.0")
    yield Way(
        "environ",
        "os.environ[...], on import",
        "import os\nfactor = os.environ['VARIABLE']",
        variable=two,
        cluster=True,
    )
    yield Way(
        "environ_get",
        "os.environ.get, of a variable that appears",
        "import os",
        "os.environ.get('VARIABLE', '2.0')",
        variable=appears,
        cluster=True,
    )
    yield Way("getenv", "os.getenv, in forward", "import os", "os.getenv('VARIABLE')", variable=two, cluster=True)
    yield Way(
        "environ_in",
        "whether a variable is in os.environ",
        "import os",
        "3.0 if 'VARIABLE' in os.environ else 2.0",
        variable=appears,
    )
    yield Way(
        "environ_gone",
        "a variable that is taken out",
        "import os",
        "2.0 if 'VARIABLE' in os.environ else 3.0",
        variable=("1", None),
    )
    yield Way(
        "environ_loop",
        "a loop over os.environ",
        "import os",
        "2.0 + sum(name == 'VARIABLE' for name in os.environ)",
        variable=appears,
    )
    yield Way(
        "environ_items", "os.environ.items()", "import os", "dict(os.environ.items())['VARIABLE']", variable=two
    )
    yield Way("environ_copy", "a copy of os.environ", "import os", "os.environ.copy()['VARIABLE']", variable=two)
    yield Way("environb", "os.environb", "import os", "os.environb[b'VARIABLE'].decode()", variable=two)
    yield Way("expandvars", "os.path.expandvars", "import os", "os.path.expandvars('$VARIABLE')", variable=two)
    yield Way(
        "default_argument",
        "the default of an argument, when the function is defined",
        "import os\n\ndef ask(factor=os.environ.get('VARIABLE', '2.0')):\n    return factor",
        "ask()",
        variable=appears,
    )
    yield Way(
        "by_package",
        "a variable that an installed package reads",
        "from reads_variable import ask",
        "ask('VARIABLE')",
        files=distribution(
            "reads_variable", {"reads_variable.py": "import os\n\ndef ask(name):\n    return os.environ[name]\n"}
        ),
        variable=two,
    )
    yield Way(
        "in_getenv_of_c",
        "a variable that C code reads, and Python beside it",
        f"{GETENV}\nimport os\nos.environ.get('VARIABLE')",
        "library.getenv(b'VARIABLE')",
        variable=two,
        unobservable="C code reads the variable",
    )


def variables_in_hooks() -> Iterator[Way]:
    """Yield variables that are read at one step only."""
    yield Way(
        "in_symbolic",
        "a variable, in the symbolic function alone",
        python="import os\n\ndef asinh(g, x):\n"
        "    return g.op('Sinh' if os.environ.get('VARIABLE') else 'Asinh', x)\n",
        case=SYMBOLIC,
        variable=(None, "1"),
    )
    yield Way(
        "variable_in_draw",
        "a variable, in the function under draw",
        python="""
import os
import numpy as np
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        return x.clamp(max=10.0) if torch.onnx.is_in_onnx_export() else x * 1.0

def draw(dims, rng):
    size = 100 if "VARIABLE" in os.environ else 4
    return {"x": rng.uniform(0, size, size=(dims["n"], 3)).astype(np.float32)}
""",
        more="draw: modules.draw",
        variable=(None, "1"),
    )
    yield Way(
        "variable_in_prepare",
        "a variable, in the function under prepare",
        python="""
import os
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        return x * (self.factor if torch.onnx.is_in_onnx_export() else 2.0)

def prepare(module):
    module.factor = float(os.environ.get("VARIABLE", "2.0"))
""",
        more="prepare: modules.prepare",
        variable=(None, "3.0"),
    )
    yield Way(
        "variable_in_calibration",
        "a variable, in the calibration data function",
        python="""
import os
import numpy as np
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 4)

    def forward(self, x):
        return self.layer(x)

def data(*arguments):
    size = 0.001 if os.getenv("VARIABLE") else 1.0
    generator = np.random.default_rng(0)
    return [{"x": (size * generator.normal(size=(4, 3))).astype(np.float32)} for _ in range(4)]
""",
        more="precisions: {int8: {calibration: {data: modules.data}}}",
        variable=(None, "1"),
    )


def of_the_host() -> Iterator[Way]:
    """Yield what differs from host to host, and from one start to another."""
    yield Way(
        "getcwd", "the working directory", "import os", "3.0 if os.getcwd().endswith('below') else 2.0", round="host"
    )
    yield Way(
        "relative_path",
        "a file by a relative path, from another working directory",
        factor="open('relative.txt').read()",
        files={"../../relative.txt": "2.0", "../../below/relative.txt": "3.0"},
        round="host",
    )
    yield Way(
        "home",
        "a file below the user's home",
        "from pathlib import Path",
        "(Path.home() / 'home.txt').read_text()",
        files={"OUTSIDE/one/home.txt": "2.0", "OUTSIDE/two/home.txt": "3.0"},
        environment={"HOME": ("OUTSIDE/one", "OUTSIDE/two")},
        round="host",
    )
    yield Way(
        "expanduser",
        "the user's home itself",
        "import os",
        "3.0 if os.path.expanduser('~').endswith('two') else 2.0",
        round="host",
    )
    yield Way(
        "temporary",
        "the folder of temporary files",
        "import tempfile",
        "3.0 if tempfile.gettempdir().endswith('two') else 2.0",
        files={"OUTSIDE/one/a": "", "OUTSIDE/two/a": ""},
        environment={"TMPDIR": ("OUTSIDE/one", "OUTSIDE/two")},
        round="host",
    )
    yield Way("clock", "time.time", "import time", "3.0 if time.time() > DEADLINE else 2.0", round="host")
    yield Way(
        "clock_on_import",
        "time.time_ns, on import",
        "import time\nfactor = 3.0 if time.time_ns() > DEADLINE * 10**9 else 2.0",
        round="host",
    )
    yield Way(
        "date",
        "datetime.now",
        "from datetime import datetime",
        "3.0 if datetime.now().timestamp() > DEADLINE else 2.0",
        round="host",
    )
    yield Way(
        "strftime",
        "time.localtime",
        "import time",
        "3.0 if time.mktime(time.localtime()) > DEADLINE else 2.0",
        round="host",
    )
    yield Way(
        "host_name",
        "the name of the host",
        "import socket",
        "3.0 if socket.gethostname() == 'second' else 2.0",
        round="host",
    )
    yield Way("node", "platform.node", "import platform", "3.0 if platform.node() == 'second' else 2.0", round="host")
    yield Way("uname", "os.uname", "import os", "3.0 if os.uname().nodename == 'second' else 2.0", round="host")
    yield Way("cores", "the number of cores", "import os", "3.0 if os.cpu_count() == 7 else 2.0", round="host")
    yield Way(
        "network",
        "what a server answers",
        "import urllib.request",
        "urllib.request.urlopen('http://127.0.0.1:PORT/').read()",
        round="host",
        unobservable="another process answers",
    )


def of_everything() -> Iterator[Way]:
    """Yield what every result depends on; each is changed alone, since the change of one makes all results again."""
    yield Way(
        "processor",
        "the processor, in /proc/cpuinfo",
        factor="3.0 if 'second processor' in open('/proc/cpuinfo').read() else 2.0",
        files={"OUTSIDE/cpuinfo": "processor : 0\nmodel name : second processor\nflags : fpu sse2 avx2\n"},
        round="processor",
    )
    yield Way(
        "capability",
        "the instructions that PyTorch uses",
        factor="3.0 if torch.backends.cpu.get_cpu_capability() == 'DEFAULT' else 2.0",
        environment={"ATEN_CPU_CAPABILITY": ("avx2", "default")},
        round="capability",
    )
    yield Way(
        "openmp",
        "a variable of OpenMP, which C code reads",
        GETENV,
        "library.getenv(b'OMP_WAIT_POLICY') and 3.0 or 2.0",
        environment={"OMP_WAIT_POLICY": (None, "PASSIVE")},
        round="openmp",
    )
    yield Way(
        "locale",
        "the locale",
        "import locale",
        "3.0 if locale.setlocale(locale.LC_CTYPE) == 'C' else 2.0",
        environment={"LC_ALL": ("C.UTF-8", "C")},
        round="locale",
    )
    yield Way(
        "time_zone",
        "the time zone",
        "import time",
        "3.0 if time.timezone else 2.0",
        environment={"TZ": ("UTC", "Asia/Tokyo")},
        round="time_zone",
    )
    yield Way(
        "path_variable",
        "a module in a folder of PYTHONPATH, which names another folder",
        "from on_path import factor",
        files={"OUTSIDE/one/on_path.py": "factor = 2.0\n", "OUTSIDE/two/on_path.py": "factor = 3.0\n"},
        environment={"PYTHONPATH": ("OUTSIDE/one", "OUTSIDE/two")},
        round="search_path",
    )
    yield Way(
        "hash_seed",
        "the hashes of texts, which are alike in all workers",
        factor="2.0 + (hash('text') != HASH)".replace("HASH", str(_hash_of_text())),
        environment={"PYTHONHASHSEED": ("0", "1")},
        round="hash_seed",
        sound=True,
    )
    yield Way(
        "optimized",
        "whether Python leaves out assertions",
        factor="2.0 if __debug__ else 3.0",
        environment={"PYTHONOPTIMIZE": (None, "1")},
        round="optimized",
    )
    yield Way(
        "sitecustomize",
        "code that runs when Python starts",
        "import sys",
        "getattr(sys, '_of_start', 2.0)",
        files={"SITE/sitecustomize.py": "import sys\nsys._of_start = FACTOR\n"},
        round="sitecustomize",
    )
    yield Way(
        "backend",
        "a package that PyTorch imports by itself",
        "import loaded_by_torch",
        "loaded_by_torch.factor",
        files=distribution(
            "loaded_by_torch",
            {"loaded_by_torch.py": f"{PLAIN}def load():\n    pass\n"},
            entry_points="[torch.backends]\nit = loaded_by_torch:load\n",
        ),
        round="backend",
    )
    yield Way(
        "worker",
        "a variable that another worker of the cluster has",
        "import os",
        "os.environ.get('VARIABLE', '2.0')",
        variable=(None, "3.0"),
        round="workers",
        cluster=True,
    )


def sound() -> Iterator[Way]:
    """Yield changes of what a case does not use: its results are kept."""
    here = "from pathlib import Path\nHERE = Path(__file__).parent\n"
    for number, where in enumerate(("files", "host", "lowerings")):
        yield Way(
            f"sound_file_{number}",
            "a file beside the case that nothing reads",
            f"{here}factor = (HERE / 'a.txt').read_text()",
            files={"a.txt": "2.0", "b.txt": "FACTOR"},
            round=where,
            sound=True,
        )
    yield Way(
        "sound_variable",
        "a variable that nothing reads",
        "import os\nfactor = os.environ.get('OTHER_VARIABLE', '2.0')",
        variable=("2.0", "3.0"),
        sound=True,
    )
    yield Way(
        "sound_touched",
        "a file that is written again with the same content",
        f"{here}import helper",
        "(HERE / 'a.txt').read_text()",
        files={"a.txt": "2.0", "helper.py": ""},
        turn=_touch,
        sound=True,
    )
    yield Way(
        "sound_package",
        "another package than the one that is used",
        "from used_package import factor",
        files={
            **distribution("used_package", {"used_package.py": "factor = 2.0\n"}),
            **distribution("unused_package", {"unused_package.py": PLAIN}),
        },
        sound=True,
    )
    yield Way(
        "sound_function",
        "another symbolic of the same file",
        python="def asinh(g, x):\n    return g.op('Asinh', x)\n\n\ndef other(g, x):\n    return FACTOR\n",
        files={
            "modules.py": "def asinh(g, x):\n    return g.op('Asinh', x)\n\n\ndef other(g, x):\n    return FACTOR\n"
        },
        case=SYMBOLIC,
        sound=True,
    )
    yield Way(
        "sound_dynamo",
        "a variable that nothing reads, of a case that dynamo exports",
        variable=("2.0", "3.0"),
        case=case_text("exported by dynamo", "forward: torch.sin(x)", export="{dynamo: [20]}"),
        sound=True,
    )
    yield Way(
        "sound_new_file",
        "a file that appears beside the case, whose folder nothing lists",
        f"{here}from helper import factor",
        files={"helper.py": "factor = 2.0\n", "new.txt": (None, ""), "new.py": (None, "")},
        sound=True,
    )


@functools.cache
def _hash_of_text() -> int:
    """Return the hash of a text where the seed of hashes is 0."""
    command = [sys.executable, "-c", "print(hash('text'))"]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    return int(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def _touch(place: Place, changed: bool) -> None:
    if changed:
        for name in ("a.txt", "helper.py"):
            (place.case / name).write_bytes((place.case / name).read_bytes())


def shim() -> bytes:
    """Return a library that makes a process see another host, for ``LD_PRELOAD``."""
    return compiled(SHIM)(0.0)
