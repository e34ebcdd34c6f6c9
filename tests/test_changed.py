"""--changed-since: exactly the cells that depend on what changed, and why; in a repository with hundreds of cases."""

from __future__ import annotations

import re
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.depends.changed import changed_since
from conformance.depends.slices import Slices
from conformance.plan.catalogue import Selection, read_suite
from tests.support import run_suite

COUNT = 120
"""Cases with a symbolic of their own, all of which stand in one file."""

SYMBOLICS = """
from helpers import rounded

def shared(g, x):
    return g.op("Identity", x)

def unused(g, x):
    return g.op("Neg", x)
"""
CASES = """
defaults:
  runtimes: onnxruntime
  export: {torchscript: [17], dynamo: [20]}
"""
ONE = """
op{n}:
  about: one of many
  forward: torch.asinh(x)
  inputs: {{x: "float32[batch, 5]"}}
  dims: {{batch: 1..4}}
  export: {{torchscript: {{opsets: [17], symbolics: {{"aten::asinh": symbolics.op{n}}}}}, dynamo: [20]}}
"""
PLAIN = """
plain:
  about: one with a module
  module: modules.Plain
  inputs: {x: "float32[batch, 5]"}
  dims: {batch: 1..4}
  draw: modules.draw
"""
MODULES = """
import torch
import numpy as np

FACTOR = 2.0

class Base(torch.nn.Module):
    pass

class Plain(Base):
    def forward(self, x):
        return x * FACTOR

class Other(torch.nn.Module):
    def forward(self, x):
        return x

def draw(dims, rng):
    return {"x": rng.normal(size=(dims["batch"], 5)).astype(np.float32)}
"""


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=Someone", "-c", "user.email=someone@example.org")
    command = ["git", *identity, "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    cases = folder / "cases"
    cases.mkdir()
    symbolics = SYMBOLICS + "".join(
        f"\ndef op{n}(g, x):\n    return g.op('Asinh', rounded(g, x) if {n} == 7 else x)\n" for n in range(COUNT)
    )
    (cases / "symbolics.py").write_text(symbolics)
    (cases / "helpers.py").write_text("def rounded(g, x):\n    return x\n\ndef other(g, x):\n    return x\n")
    (cases / "modules.py").write_text(MODULES)
    (cases / "many.yaml").write_text(CASES + "".join(ONE.format(n=n) for n in range(COUNT)))
    (cases / "plain.yaml").write_text(PLAIN)
    (folder / "constraints.txt").write_text("torch==2.15.0\nonnx==1.23.2\n")
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "as it was")
    return folder


@pytest.fixture
def repository(original, tmp_path) -> Path:
    subprocess.run(["cp", "-r", str(original), str(tmp_path / "r")], check=True)
    return tmp_path / "r"


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1, text.count(old)
    file.write_text(text.replace(old, new))


def changes(repository: Path, selection: Selection | None = None) -> dict[str, list[str]]:
    selection = selection or Selection()
    cells, files = read_suite([repository / "cases"], selection)
    assert not any(files.values())
    return changed_since("HEAD", [repository / "cases"], cells, selection).reasons


def cases_of(found: dict[str, list[str]]) -> set[str]:
    return {name.split("[")[1].split("-")[0] for name in found}


def test_nothing_changed_is_no_cell(repository):
    assert changes(repository) == {}


def test_an_edited_symbolic_selects_its_case_among_hundreds_of_cells_and_only_that_exporter(repository):
    edit(repository / "cases" / "symbolics.py", "rounded(g, x) if 42 == 7 else x", "rounded(g, x) if 42 == 8 else x")
    found = changes(repository)
    assert cases_of(found) == {"op42"}
    assert {name.split("-")[1] for name in found} == {"torchscript"}
    assert {name.split("[")[0] for name in found} == {"export", "registration", "accuracy", "specials"}
    assert set(map(tuple, found.values())) == {("symbolics.py: op42 changed",)}


def _reworded(text: str) -> str:
    return text.replace("one with a module", "said in other words")


EDITS: dict[str, tuple[str, Callable[[str], str], set[str], str]] = {
    "a helper in another file": (
        "helpers.py", lambda t: t.replace("return x", "return g.op('Neg', x)", 1),
        {f"op{n}" for n in range(COUNT)}, "helpers.py: rounded changed",
    ),
    "a helper that nobody uses": ("helpers.py", lambda t: t + "\ndef more():\n    pass\n", set(), ""),
    "a symbolic that nobody uses": ("symbolics.py", lambda t: t.replace('"Neg"', '"Abs"'), set(), ""),
    "a comment": ("symbolics.py", lambda t: f"# in other words\n{t}", set(), ""),
    "something that is done when the file is loaded": (
        "symbolics.py", lambda t: t + "\nprint('hello')\n", {f"op{n}" for n in range(COUNT)},
        "symbolics.py, when loaded is new",
    ),
    "a constant that a module uses": (
        "modules.py", lambda t: t.replace("2.0", "2.5"), {"plain"}, "modules.py: FACTOR changed",
    ),
    "a base class": (
        "modules.py", lambda t: t.replace("    pass", "    x = 1"), {"plain"}, "modules.py: Base changed",
    ),
    "a class that nobody uses": ("modules.py", lambda t: t.replace("return x\n", "return -x\n"), set(), ""),
    "what draws inputs": (
        "modules.py", lambda t: t.replace("rng.normal", "3 + rng.normal"), {"plain"}, "modules.py: draw changed",
    ),
    "a dim": ("plain.yaml", lambda t: t.replace("1..4", "1..5"), {"plain"}, "the case's dims changed"),
    "words for the reader": ("plain.yaml", _reworded, set(), ""),
    "lines that move": ("plain.yaml", lambda t: f"\n\n# a comment\n{t}", set(), ""),
    "a pin": (
        "../constraints.txt", lambda t: t.replace("2.15.0", "2.16.0"), {"plain", *(f"op{n}" for n in range(COUNT))},
        "constraints.txt: torch 2.15.0 -> 2.16.0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
def test_exactly_what_depends_on_an_edit_is_selected_with_the_reason(repository, name):
    file, change, cases, reason = EDITS[name]
    place = repository / "cases" / file
    before = place.read_text()
    place.write_text(change(before))
    assert place.read_text() != before
    found = changes(repository)
    assert cases_of(found) == cases
    assert {text for reasons in found.values() for text in reasons} == ({reason} if reason else set())


def test_a_helper_is_followed_only_to_those_that_use_it(repository):
    """op7 alone would take the branch, but every symbolic names the helper: text decides, not values."""
    place = repository / "cases" / "symbolics.py"
    text = place.read_text()
    place.write_text(text.replace("rounded(g, x) if 8 == 7 else x", "x"))
    git(repository, "commit", "-qam", "one without the helper")
    edit(repository / "cases" / "helpers.py", "def rounded(g, x):\n    return x", "def rounded(g, x):\n    return g")
    assert "op8" not in cases_of(changes(repository))
    assert "op9" in cases_of(changes(repository))


def test_taking_a_registration_out_is_a_change(repository):
    edit(
        repository / "cases" / "many.yaml",
        'symbolics: {"aten::asinh": symbolics.op3}',
        "options: {do_constant_folding: true}",
    )
    found = changes(repository)
    assert cases_of(found) == {"op3"}
    reasons = {reason for one in found.values() for reason in one}
    assert "symbolics of aten::asinh was taken out" in reasons


def test_a_new_case_is_there_and_one_that_is_gone_is_told(repository):
    place = repository / "cases" / "plain.yaml"
    place.write_text(place.read_text().replace("plain:", "plainer:"))
    cells, _ = read_suite([repository / "cases"], Selection())
    found = changed_since("HEAD", [repository / "cases"], cells, Selection())
    assert cases_of(found.reasons) == {"plainer"}
    assert {reason for one in found.reasons.values() for reason in one} == {"not there then"}
    assert all("[plain-" in name for name in found.gone)
    assert found.gone
    assert "are no longer there" in "\n".join(found.lines(100))


def test_a_selection_is_held_against_the_same_selection(repository):
    edit(repository / "cases" / "plain.yaml", "1..4", "1..5")
    selection = Selection(exporters=["dynamo"])
    cells, _ = read_suite([repository / "cases"], selection)
    found = changed_since("HEAD", [repository / "cases"], cells, selection)
    assert found.gone == []
    assert all("-dynamo-" in name for name in found.reasons)


def test_a_file_that_could_not_be_read_then_is_run_now(repository):
    edit(repository / "cases" / "plain.yaml", "  about:", "  abuot:")
    git(repository, "commit", "-qam", "broken")
    edit(repository / "cases" / "plain.yaml", "  abuot:", "  about:")
    found = changes(repository)
    assert cases_of(found) == {"plain"}
    assert {reason for one in found.values() for reason in one} == {"cases/plain.yaml could not be read then"}


@pytest.mark.parametrize("revision, words", [("nowhere", "git knows no revision 'nowhere'"), ("", "no revision")])
def test_a_revision_that_is_not_there_is_one_clear_line(repository, revision, words):
    done = run_suite(repository, "--changed-since", revision)
    assert done.code == 4
    assert words in done.text
    assert "Traceback" not in done.text


def test_outside_of_a_repository_that_is_said(repository):
    subprocess.run(["rm", "-rf", str(repository / ".git")], check=True)
    done = run_suite(repository, "--changed-since", "HEAD", GIT_CEILING_DIRECTORIES=str(repository.parent))
    assert done.code == 4
    assert "is in no git repository" in done.text


def test_a_run_of_what_changed_says_what_and_why(repository):
    edit(repository / "cases" / "symbolics.py", "rounded(g, x) if 5 == 7 else x", "x + x if 5 == 7 else x")
    done = run_suite(repository, "--changed-since", "HEAD")
    assert done.code == 0, done.text
    assert {record["case"] for record in done.records.values()} == {"op5"}
    assert re.search(r"^4 of \d+ cells depend on what changed since HEAD", done.text, re.M)
    assert "symbolics.py: op5 changed" in done.text


def test_a_run_where_nothing_changed_is_no_failure_and_says_so(repository):
    done = run_suite(repository, "--changed-since", "HEAD")
    assert done.code == 0, done.text
    assert "0 of " in done.text
    assert "cells depend on what changed since HEAD" in done.text


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


# ---- ways in which Python reaches other Python ---------------------------------------------------------------

USER = {
    "symbolics.py": "import helpers\n\ndef op(g, x):\n    return helpers.rounded(g, x)\n",
    "helpers.py": "def rounded(g, x):\n    return x\n\ndef other(g, x):\n    return x\n",
}


def beside(text: str, **files: str) -> dict[str, str]:
    """``symbolics.py`` with that text, and more files by their names: ``a__init`` is ``a/__init__.py``."""
    paths = {name: re.sub(r"\binit$", "__init__", name.replace("__", "/")) for name in files}
    more = {f"{paths[name]}.py": textwrap.dedent(content) for name, content in files.items()}
    return {"symbolics.py": textwrap.dedent(text), **more}


HELPERS = "def rounded(g, x):\n    return x\n\ndef other(g, x):\n    return -x\n"
USED = ("return x", "return x + x")
UNUSED = ("return -x", "return -x - x")

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


def put(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)


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


def test_the_order_of_functions_that_register_for_themselves_is_a_change(repository):
    """Of two that do so for one operator, the later one counts."""
    one, two = ('"aten::asinh": symbolics.first', '"aten::roll": symbolics.second')
    text = f"""
fights:
  about: x
  forward: torch.asinh(x)
  inputs: {{x: "float32[4, 5]"}}
  export: {{torchscript: {{opsets: [17], registers: {{{one}, {two}}}}}, dynamo: [20]}}
"""
    put(repository, {"cases/fights.yaml": text})
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "two of them")
    edit(repository / "cases/fights.yaml", f"{one}, {two}", f"{two}, {one}")
    found = changes(repository)
    assert {name.split("-")[1] for name in found} == {"torchscript"}
    assert {reason for one in found.values() for reason in one} == {"the order of registers changed"}


def test_a_renamed_function_and_a_new_untracked_file_are_changes(repository):
    edit(repository / "cases/modules.py", "class Plain(Base)", "class Plainer(Base)")
    assert cases_of(changes(repository)) == {"plain"}
    git(repository, "checkout", "-q", "cases/modules.py")
    put(repository, {"cases/more/more.yaml": PLAIN.replace("plain:", "more:"), "cases/more/modules.py": MODULES})
    assert cases_of(changes(repository)) == {"more"}


def test_a_data_file_that_the_case_depends_on_is_a_change(repository):
    edit(repository / "cases/plain.yaml", "  draw: modules.draw", "  draw: modules.draw\n  depends: data/*.txt")
    put(repository, {"cases/data/one.txt": "1"})
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "data")
    assert changes(repository) == {}
    put(repository, {"cases/data/two.txt": "2"})
    (found,) = set(map(tuple, changes(repository).values()))
    assert found == ("data/two.txt is new",)
    (repository / "cases/data/one.txt").unlink()
    (found,) = set(map(tuple, changes(repository).values()))
    assert found == ("data/one.txt was taken out", "data/two.txt is new")


# ---- what everything depends on ------------------------------------------------------------------------------

PROJECT = """
[project]
name = "own"
description = "words"
dependencies = ["torch==2.15.0"]

[project.optional-dependencies]
dev = ["onnxruntime==1.31.1"]

[tool.pytest.ini_options]
addopts = "-q"

[tool.ruff]
line-length = 100
"""


@pytest.mark.parametrize(
    ("file", "text", "change", "reason"),
    [
        ("pyproject.toml", PROJECT, ("2.15.0", "2.16.0"), "pyproject.toml: project.dependencies changed"),
        ("pyproject.toml", PROJECT, ("1.31.1", "1.32.0"), "pyproject.toml: project.optional-dependencies changed"),
        ("pyproject.toml", PROJECT, ('"-q"', '"--examples=1"'), "pyproject.toml: tool.pytest changed"),
        ("pyproject.toml", PROJECT, ('"words"', '"others"'), None),
        ("pyproject.toml", PROJECT, ("100", "120"), None),
        ("requirements-gpu.txt", "torch>=2.1\n", (">=2.1", ">=2.2"), "requirements-gpu.txt: torch >=2.1 -> >=2.2"),
        ("requirements/ci.txt", "-r base.txt\n", ("-r base.txt", ""), "requirements/ci.txt: -r base.txt is gone"),
        ("requirements.txt", "torch==2.15.0  # why\n", ("# why", "# because"), None),
        ("cases/constraints.txt", "onnx==1.0\n", ("1.0", "1.1"), "cases/constraints.txt: onnx 1.0 -> 1.1"),
        ("uv.lock", "torch 1\n", ("1", "2"), "uv.lock changed"),
        ("conftest.py", "import torch\n", ("import torch", "import torch  # changed"), "conftest.py changed"),
        ("pytest.ini", "[pytest]\naddopts = -q\n", ("-q", "-v"), "pytest.ini changed"),
        ("notes/requirements.txt", "sphinx==1\n", ("1", "2"), None),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 60 else "",
)  # fmt: skip
def test_what_everything_runs_with_is_a_change_of_everything(repository, file, text, change, reason):
    put(repository, {file: text})
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "as it was")
    assert changes(repository) == {}
    edit(repository / file, *change)
    found = changes(repository)
    assert {one for reasons in found.values() for one in reasons} == ({reason} if reason else set())
    assert bool(found) == (reason is not None)


# ---- git -----------------------------------------------------------------------------------------------------


def test_without_git_that_is_said(repository, monkeypatch):
    monkeypatch.setenv("PATH", str(repository))
    with pytest.raises(ValueError, match=r"git cannot be run \(No such file or directory\)"):
        changes(repository)


def test_what_git_refuses_is_told_whole(repository, monkeypatch):
    """As where the checkout belongs to another user, which is common in containers."""
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(ValueError, match=r"dubious ownership .*safe\.directory"):
        changes(repository)


def test_a_shallow_clone_is_told_how_to_get_the_rest(repository, tmp_path):
    git(repository, "commit", "-qm", "a second one", "--allow-empty")
    there = tmp_path / "a clone"
    git(tmp_path, "clone", "-q", "--depth=1", repository.as_uri(), str(there))
    cells, _ = read_suite([there / "cases"], Selection())
    assert changed_since("HEAD", [there / "cases"], cells, Selection()).reasons == {}
    with pytest.raises(ValueError, match=r"no revision 'HEAD~1'; this is a shallow clone.*fetch-depth: 0"):
        changed_since("HEAD~1", [there / "cases"], cells, Selection())


def test_a_detached_head_in_a_folder_with_spaces_and_from_a_folder_below(repository, tmp_path, monkeypatch):
    there = tmp_path / "a folder, as it is"
    repository.rename(there)
    git(there, "checkout", "-q", "--detach")
    edit(there / "cases/plain.yaml", "1..4", "1..5")
    monkeypatch.chdir(there / "cases")
    cells, _ = read_suite([Path("plain.yaml")], Selection())
    found = changed_since("HEAD", [Path("plain.yaml")], cells, Selection())
    assert cases_of(found.reasons) == {"plain"}
    assert found.gone == []
