"""The ways in which Python reaches other Python are followed, and nothing else of a file is."""

from __future__ import annotations

import re
import textwrap

import pytest

from conformance.depends.slices import Slices
from tests.changed.support import HELPERS, UNUSED, USED, cases_of, changes, edit, git, put


def test_names_that_are_computed_make_the_whole_file_count(tmp_path):
    (tmp_path / "one.py").write_text("def a(x):\n    return globals()['b'](x)\n\ndef b(x):\n    return x\n")
    before = Slices([]).parts(tmp_path, "one.a")
    edit(tmp_path / "one.py", "    return x\n", "    return -x\n")
    assert Slices([]).parts(tmp_path, "one.a") != before


def test_a_function_that_is_registered_when_loaded_counts_for_the_whole_file(tmp_path):
    text = textwrap.dedent(
        """
        import torch

        @torch.library.custom_op("own::op", mutates_args=())
        def op(x: torch.Tensor) -> torch.Tensor:
            return x

        def module():
            return torch.nn.Identity()
        """
    )
    (tmp_path / "one.py").write_text(text)
    before = Slices([]).parts(tmp_path, "one.module")
    edit(tmp_path / "one.py", "    return x\n", "    return -x\n")
    assert Slices([]).parts(tmp_path, "one.module") != before


USER = {
    "symbolics.py": "import helpers\n\ndef op(g, x):\n    return helpers.rounded(g, x)\n",
    "helpers.py": "def rounded(g, x):\n    return x\n\ndef other(g, x):\n    return x\n",
}


def beside(text: str, **files: str) -> dict[str, str]:
    """``symbolics.py`` with that text, and more files by their names: ``a__init`` is ``a/__init__.py``."""
    paths = {name: re.sub(r"\binit$", "__init__", name.replace("__", "/")) for name in files}
    more = {f"{paths[name]}.py": textwrap.dedent(content) for name, content in files.items()}
    return {"symbolics.py": textwrap.dedent(text), **more}


REACHES: dict[str, tuple[dict[str, str], str, tuple[str, str]]] = {
    "an import inside a function": (
        beside("def op(g, x):\n    from helpers import rounded\n    return rounded(g, x)\n", helpers=HELPERS),
        "helpers.py", USED,
    ),
    "an import in try": (
        beside(
            """
            try:
                from helpers import rounded
            except ImportError:
                rounded = None

            def op(g, x):
                return rounded(g, x)
            """,
            helpers=HELPERS,
        ),
        "helpers.py", USED,
    ),
    "an import in if": (
        beside("if True:\n    import helpers\n\ndef op(g, x):\n    return helpers.rounded(g, x)\n", helpers=HELPERS),
        "helpers.py", USED,
    ),
    "a file that is imported for what loading it does": (
        beside("import setup_ops\n\ndef op(g, x):\n    return x\n", setup_ops="import torch\ntorch.manual_seed(1)\n"),
        "setup_ops.py", ("seed(1)", "seed(2)"),
    ),
    "what loading does two imports away": (
        beside(
            "import helpers\n\ndef op(g, x):\n    return x\n",
            helpers="import setup_ops\n", setup_ops="import torch\ntorch.manual_seed(1)\n",
        ),
        "setup_ops.py", ("seed(1)", "seed(2)"),
    ),
    "a helper two imports away": (
        beside(
            "from helpers import middle\n\ndef op(g, x):\n    return middle(g, x)\n",
            helpers="import deep\n\ndef middle(g, x):\n    return deep.rounded(g, x)\n", deep=HELPERS,
        ),
        "deep.py", USED,
    ),
    "two star imports": (
        beside("from one import *\nfrom two import *\n\ndef op(g, x):\n    return rounded(g, x)\n",
               one=HELPERS, two="VERSION = 1\n"),
        "one.py", USED,
    ),
    "two modules of one package": (
        beside(
            "import nets.one\nimport nets.two\n\ndef op(g, x):\n    return nets.one.rounded(g, nets.two.f(x))\n",
            nets__init="", nets__one=HELPERS, nets__two="def f(x):\n    return x\n",
        ),
        "nets/one.py", USED,
    ),
    "a relative import of a package": (
        beside("from nets import rounded\n\ndef op(g, x):\n    return rounded(g, x)\n",
               nets__init="from .core import rounded\n", nets__core=HELPERS),
        "nets/core.py", USED,
    ),
    "a relative import of a module": (
        beside("import nets.top\n\ndef op(g, x):\n    return nets.top.call(g, x)\n",
               nets__init="", nets__top="from . import core\n\ndef call(g, x):\n    return core.rounded(g, x)\n",
               nets__core=HELPERS),
        "nets/core.py", USED,
    ),
    "a relative import from above": (
        beside("from nets.low.top import call\n\ndef op(g, x):\n    return call(g, x)\n",
               nets__init="", nets__low__init="", nets__core=HELPERS,
               nets__low__top="from ..core import rounded\n\ndef call(g, x):\n    return rounded(g, x)\n"),
        "nets/core.py", USED,
    ),
    "what a package does when it is loaded": (
        beside("from nets.core import rounded\n\ndef op(g, x):\n    return rounded(g, x)\n",
               nets__init="import torch\ntorch.manual_seed(1)\n", nets__core=HELPERS),
        "nets/__init__.py", ("seed(1)", "seed(2)"),
    ),
    "one of two files of the same name": (
        beside("from one import rounded\nfrom two import other\n\nop = rounded, other\n",
               one__init=f"# eval\n{HELPERS}\nuse = eval\n", two__init=f"{HELPERS}\nuse = eval\n"),
        "one/__init__.py", USED,
    ),
    "an import by a computed name": (
        beside("import importlib\n\ndef op(g, x):\n    return importlib.import_module('hel' + 'pers')\n",
               helpers=HELPERS),
        "helpers.py", USED,
    ),
    "an import by a computed name, by another name": (
        beside("from importlib import import_module as load\n\ndef op(g, x):\n    return load('helpers')\n",
               helpers=HELPERS),
        "helpers.py", USED,
    ),
    "a module out of sys.modules": (
        beside("import sys\n\ndef op(g, x):\n    return sys.modules['helpers'].rounded(g, x)\n", helpers=HELPERS),
        "helpers.py", USED,
    ),
    "another function of a library by the same name": (
        beside("from torch.nn.functional import relu as act\n\ndef op(g, x):\n    return act(x)\n"),
        "symbolics.py", ("relu", "gelu"),
    ),
    "the order of two files that do something when loaded": (
        beside("import one\nimport two\n\ndef op(g, x):\n    return x\n", one="import torch\ntorch.manual_seed(1)\n",
               two="import three\n", three="import torch\ntorch.manual_seed(2)\n"),
        "symbolics.py", ("import one\nimport two", "import two\nimport one"),
    ),
    "an attribute by its name": (
        beside("import helpers\n\ndef op(g, x):\n    return getattr(helpers, 'roun' + 'ded')\n", helpers=HELPERS),
        "helpers.py", USED,
    ),
    "a base class in another file": (
        beside("from helpers import Base\n\nclass op(Base):\n    pass\n",
               helpers="class Base:\n    def f(self, x):\n        return x\n"),
        "helpers.py", USED,
    ),
    "a class attribute": (beside("class op:\n    scale = 1\n"), "symbolics.py", ("scale = 1", "scale = 2")),
    "a decorator's argument": (
        beside("import torch\n\n@torch.no_grad(1)\ndef op(g, x):\n    return x\n"), "symbolics.py", ("(1)", "(2)"),
    ),
    "a decorator of one's own": (
        beside("from helpers import rounded\n\n@rounded\ndef op(g, x):\n    return 1\n", helpers=HELPERS),
        "helpers.py", USED,
    ),
    "a table that decorators of one's own fill": (
        beside(
            """
            TABLE = {}

            def symbolic(name):
                return lambda f: TABLE.setdefault(name, f)

            @symbolic("aten::roll")
            def roll(g, x):
                return g.op("One", x)

            def op():
                return [TABLE[name] for name in TABLE]
            """
        ),
        "symbolics.py", ('"One"', '"Two"'),
    ),
    "the order of two registrations": (
        beside(
            """
            from torch.onnx import register_custom_op_symbolic as register

            def one(g, x):
                return g

            register("aten::roll", one, 9)
            register("aten::asinh", one, 9)

            def op(g, x):
                return x
            """
        ),
        "symbolics.py", ('register("aten::roll", one, 9)\nregister("aten::asinh", one, 9)',
                         'register("aten::asinh", one, 9)\nregister("aten::roll", one, 9)'),
    ),
    "the order of two decorated functions": (
        beside(
            """
            from table import keep

            @keep
            def one(g, x): return x
            @keep
            def two(g, x): return g

            def op(g, x):
                return x
            """,
            table="KEPT = []\n\ndef keep(f):\n    KEPT.append(f)\n    return f\n",
        ),
        "symbolics.py", ("@keep\ndef one(g, x): return x\n@keep\ndef two(g, x): return g",
                         "@keep\ndef two(g, x): return g\n@keep\ndef one(g, x): return x"),
    ),
    "a registration whose result is kept": (
        beside("import lib\n\nf = lib.register('a::b', lambda x: x)\n\ndef op(g, x):\n    return x\n"),
        "symbolics.py", ("lambda x: x", "lambda x: x + x"),
    ),
    "a module that is patched": (
        beside("import helpers\n\nhelpers.SCALE = 1\n\ndef op(g, x):\n    return x\n", helpers="SCALE = 3\n"),
        "symbolics.py", ("SCALE = 1", "SCALE = 2"),
    ),
    "a class that is patched": (
        beside("class op:\n    pass\n\nop.scale = 1\n"), "symbolics.py", ("scale = 1", "scale = 2"),
    ),
    "an entry of a table of another file": (
        beside("from helpers import TABLE\n\nTABLE[0] = 1\n\ndef op(g, x):\n    return x\n", helpers="TABLE = {}\n"),
        "symbolics.py", ("= 1", "= 2"),
    ),
    "a constant that is added to": (
        beside("SCALE = 1\nSCALE += 1\n\ndef op(g, x):\n    return SCALE\n"), "symbolics.py", ("+= 1", "+= 2"),
    ),
    "the order in which a name is bound anew": (
        beside("A = 1\nB = A\nA = 2\n\ndef op(g, x):\n    return B\n"), "symbolics.py",
        ("B = A\nA = 2", "A = 2\nB = A"),
    ),
    "a class that its base is told of": (
        beside("import plugins\nfrom base import KNOWN\n\ndef op(g, x):\n    return KNOWN\n",
               base="KNOWN = []\n\nclass Base:\n    def __init_subclass__(cls):\n        KNOWN.append(cls)\n",
               plugins="from base import Base\n\nclass One(Base):\n    scale = 1\n"),
        "plugins.py", ("scale = 1", "scale = 2"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REACHES)
def test_python_is_followed_however_it_is_reached(tmp_path, name):
    files, file, (old, new) = REACHES[name]
    put(tmp_path, files)
    before = Slices([]).parts(tmp_path, "symbolics.op")
    assert Slices([]).parts(tmp_path, "symbolics.op") == before
    edit(tmp_path / file, old, new)
    assert Slices([]).parts(tmp_path, "symbolics.op") != before


@pytest.mark.parametrize(
    ("files", "file", "change"),
    [
        (USER, "helpers.py", ("    return x\n\ndef other", "    return x\n\n# words\ndef other")),
        (USER, "helpers.py", ("def other(g, x):\n    return x", "def other(g, x):\n    return g")),
        (beside("from helpers import rounded\n\ndef op(g, x):\n    return rounded(g, x)\n", helpers=HELPERS),
         "helpers.py", UNUSED),
        (beside("import functools\n\n@functools.cache\ndef one():\n    return 1\n\ndef op(g, x):\n    return x\n"),
         "symbolics.py", ("return 1", "return 2")),
        (beside("from importlib.metadata import version\n\ndef op(g, x):\n    return version('torch')\n",
                helpers=HELPERS),
         "helpers.py", UNUSED),
        (beside("from .core import f\n\ndef op(g, x):\n    return x\n"), "symbolics.py", ("core", "more")),
    ],
    ids=["a comment", "a function beside, of a module", "a function beside, by name", "a harmless decorator",
         "a version that is asked for", "an import that is not used"],
)  # fmt: skip
def test_what_is_beside_is_not_followed(tmp_path, files, file, change):
    put(tmp_path, files)
    before = Slices([]).parts(tmp_path, "symbolics.op")
    edit(tmp_path / file, *change)
    assert Slices([]).parts(tmp_path, "symbolics.op") == before


def test_two_versions_of_a_tree_have_the_same_labels(tmp_path):
    for root in (tmp_path / "then", tmp_path / "now"):
        put(root / "cases", beside("from nets.core import rounded\n\ndef op(g, x):\n    return rounded(g, x)\n"))
        put(root / "lib", {"nets/__init__.py": "import eval\n", "nets/core.py": HELPERS})
    then, now = (
        Slices([root / "lib"]).parts(root / "cases", "symbolics.op") for root in (tmp_path / "then", tmp_path / "now")
    )
    assert then == now
    assert "nets/core.py: rounded" in now


def test_a_module_of_the_repository_is_followed_wherever_it_lies(repository):
    """At the top of the repository and in src, where an editable installation finds it without sys.path."""
    for place in ("own_ops.py", "src/own_package/ops.py"):
        put(repository, {place: HELPERS})
    edit(
        repository / "cases/modules.py",
        "FACTOR = 2.0",
        "from own_package.ops import other\nimport own_ops\n\nFACTOR = 2.0",
    )
    edit(repository / "cases/modules.py", "return x * FACTOR", "return own_ops.rounded(0, other(0, x)) * FACTOR")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "own modules")
    assert changes(repository) == {}
    edit(repository / "own_ops.py", *USED)
    assert cases_of(changes(repository)) == {"plain"}
    edit(repository / "own_ops.py", *reversed(USED))
    edit(repository / "src/own_package/ops.py", *UNUSED)
    assert cases_of(changes(repository)) == {"plain"}


@pytest.mark.parametrize("forward", ["modules.twice(x)", "getattr(modules, name)(x)", "[modules][0].twice(x)"])
def test_what_an_expression_takes_from_a_file_is_followed(repository, forward):
    case = {"modules.twice(x)": "", "getattr(modules, name)(x)": "  with: {name: twice}\n"}.get(forward, "")
    text = 'called:\n  about: x\n  forward: "FORWARD"\n  inputs: {x: "float32[4, 5]"}\n'.replace("FORWARD", forward)
    put(repository, {"cases/called.yaml": text + case})
    with (repository / "cases/modules.py").open("a") as file:
        file.write("\ndef twice(x):\n    return x + x\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "an expression")
    edit(repository / "cases/modules.py", "return x + x", "return 2 * x")
    assert "called" in cases_of(changes(repository))
