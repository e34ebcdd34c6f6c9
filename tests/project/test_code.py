"""Rules for the code of the package: who may import whom, few exceptions for the type checker, plain docstrings."""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from conformance import HOME
from tests.kit.imports import imported, modules

ROOMS = (
    "front", "extras", "cells", "diagnose", "judge", "models", "case", "results", "runtimes", "compare", "process",
)  # fmt: skip
"""From what people call down to what everything rests on; ``docs/architecture.md`` walks through them."""
DOORS = {"plugin", "explanations", "testing", "test_suite", "__main__", "__init__"}
"""The modules at the top, by which the package is entered: they may import from any room, and no room from them."""
IGNORED = 15
"""The most lines that the type checker may leave out, each with a reason."""

WIDE = {"Exception": 30, "BaseException": 15}
"""The most handlers that take whatever comes; ``errors.attempt`` and ``errors.or_else`` do so for the others."""

QUESTIONS = 20
"""The most docstrings that may open with such a word."""
FILES = modules()


def room(path: Path) -> str:
    """The folder or module at the top of the package that a file belongs to."""
    return path.relative_to(HOME).parts[0].removesuffix(".py")


def test_every_folder_has_its_place():
    assert {room(file) for file in FILES} == {*ROOMS, *DOORS}


def test_modules_import_from_below_only():
    order = [*ROOMS, "__init__"]  # which is what all may know: where the package lies, and its version
    upwards = [
        f"{file.relative_to(HOME)}:{line}: {other.relative_to(HOME)}"
        for file in FILES
        if room(file) not in DOORS
        for line, other in imported(file)
        if room(other) not in order or order.index(room(other)) < order.index(room(file))
    ]
    assert upwards == []


def test_what_goes_beyond_a_run_is_known_to_what_a_user_types_alone():
    knowing = {room(file) for file in FILES for _, other in imported(file) if room(other) == "extras"}
    assert knowing <= {"front", "extras"}


def test_a_room_says_what_it_is_and_brings_nothing_in():
    """A replay has no pydantic; importing a module of ``case`` must not import its neighbours."""
    for name in ROOMS:
        tree = ast.parse((HOME / name / "__init__.py").read_text(encoding="utf-8"))
        assert ast.get_docstring(tree) and (name == "runtimes" or len(tree.body) == 1), name
    assert (HOME / "case" / "files" / "__init__.py").read_text(encoding="utf-8") == ""


BESIDE = {
    "conformance": (),
    "tests/plants": ("tests.plants",),
    "benchmarks": ("tests.kit", "tests.plants", "benchmarks"),
    "evidence": ("tests", "benchmarks", "evidence"),
}
"""By folder, what it may import of the checkout beside the package."""


@pytest.mark.parametrize("folder", BESIDE)
def test_folders_import_from_those_that_they_stand_on(folder):
    """The package runs without a checkout; benchmarks know no page of evidence, and plants know neither."""
    names = {
        name
        for file in (HOME.parent / folder).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        for name in (
            [node.module] if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        )
        if name and name.split(".")[0] in ("tests", "benchmarks", "evidence", "docs")
    }  # fmt: skip
    assert sorted(name for name in names if not any(f"{name}.".startswith(f"{on}.") for on in BESIDE[folder])) == []


def test_no_modules_import_each_other_nor_for_their_types():
    graph = {file: {other for _, other in imported(file)} for file in FILES}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_no_two_modules_have_one_name():
    names = Counter(file.name for file in FILES if file.name not in ("__init__.py", "__main__.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_no_two_classes_have_one_name():
    classes = (
        node.name
        for file in FILES
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in Counter(classes).items() if count > 1] == []


def test_no_module_is_longer_than_a_person_reads_at_once():
    lines = {str(file.relative_to(HOME)): len(file.read_text(encoding="utf-8").splitlines()) for file in FILES}
    assert {name: count for name, count in lines.items() if count > 400} == {}


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def names_of(imports: Iterable[ast.AST]) -> set[str]:
    return {alias.asname or alias.name.partition(".")[0] for node in imports
            if isinstance(node, (ast.Import, ast.ImportFrom)) for alias in node.names}  # fmt: skip


def used(node: ast.AST, unbound: set[str]) -> Iterator[str]:
    """The names among ``unbound`` that code below a node reads; annotations are none, which nobody evaluates."""
    if isinstance(node, (ast.FunctionDef, ast.Lambda)):
        unbound = unbound - names_of(ast.walk(node)) - {one.arg for one in ast.walk(node) if isinstance(one, ast.arg)}
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns") or (
            isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        ):
            continue
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, ast.Name) and one.id in unbound and isinstance(one.ctx, ast.Load):
                yield f"{one.id} in line {one.lineno}"
            elif isinstance(one, ast.AST):
                yield from used(one, unbound)


def test_what_is_imported_for_types_alone_is_read_by_no_code():
    for file in FILES:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        blocks = [
            node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        ]
        assert [*used(tree, names_of(one for block in blocks for one in block.body))] == [], file


def test_what_the_type_checker_leaves_out_has_a_reason():
    every = (line for file in FILES for line in file.read_text(encoding="utf-8").splitlines())
    lines = [line for line in every if "type: ignore" in line]
    assert len(lines) <= IGNORED
    assert [line for line in lines if not re.search(r"type: ignore\[[\w\-, ]+\]  # \w", line)] == []


def test_few_handlers_take_whatever_comes_and_each_says_what_that_is():
    found = Counter()
    for file in FILES:
        lines = file.read_text(encoding="utf-8").splitlines()
        for node in ast.walk(ast.parse("\n".join(lines))):
            head = ""
            if isinstance(node, ast.ExceptHandler):
                head = "BaseException" if node.type is None else ast.unparse(node.type)
            elif isinstance(node, ast.With):
                head = " ".join(text for item in node.items if "suppress(" in (text := ast.unparse(item)))
            if wide := re.search(r"\b(Base)?Exception\b", head):
                found[wide[0]] += 1
                assert any("#" in line for line in lines[node.lineno - 1 : node.body[0].lineno]), (file, node.lineno)
    assert all(found[name] <= most for name, most in WIDE.items()), found


def test_docstrings_say_what_a_thing_does_and_ask_no_question():
    """A sentence that opens so has no verb of its own, and a reader has to guess who does what."""
    opening = re.compile(r"(What|Whether|Which|Who|Whose|How|Where)\b")
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    asking = [
        f"{file.relative_to(HOME)}: {text.splitlines()[0]}"
        for file in FILES
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, kinds) and (text := ast.get_docstring(node)) and opening.match(text)
    ]
    assert len(asking) <= QUESTIONS, asking


def test_the_map_of_the_code_fits_one_screen():
    page = HOME.parent / "docs" / "architecture.md"
    text = page.read_text(encoding="utf-8")
    assert len(text.split()) <= 600
    folders = {file.parent.relative_to(HOME).parts[0] for file in FILES if file.parent != HOME}
    assert [folder for folder in folders if f"`{folder}`" not in text] == []


READING = (
    "case.files.declaration",
    "case.files.case_file",
    "case.plan.catalogue",
    "results.records.settle",
    "results.records.text",
    "results.records.matrix",
)
COMPARING = ("case.draw.shapes", "case.draw.value_regimes", "compare.tolerance", "compare.vacuity")
WITHOUT_PYTORCH = (
    "models.bundle.bundle_layout", "cells.replay.replay_bundle", "compare.judges", "diagnose.nodes.blame",
    "results.records.settle", "runtimes.tensorrt", "results.records.environment", "process.worker.isolation",
)  # fmt: skip
GATING = (
    "results.baseline", "models.kept.changed", "models.kept.observed_dependencies", "models.kept.packages",
    "results.report.command", "results.report.html", "results.report.markdown", "results.report.annotations",
)  # fmt: skip
LATENCY = (
    "case.files.time_budget",
    *(f"judge.latency.{file.stem}" for file in (HOME / "judge" / "latency").glob("[a-z]*.py")),
)
RUNTIMES = (
    "runtimes",
    "runtimes.onnxruntime",
    "runtimes.onnxreference",
    "models.exporters.graph",
    "models.kept.model_store",
)


@pytest.mark.parametrize("needed, never", [
    ((*READING, *COMPARING), ("torch", "onnx", "onnxruntime", "pytest", "_pytest")),
    (RUNTIMES, ("torch", "pytest", "_pytest")),
    (WITHOUT_PYTORCH, ("torch", "pytest", "_pytest", "pydantic", "ruamel", "onnxruntime", "hypothesis")),
    ((*GATING, *LATENCY), ("torch", "onnx", "onnxruntime", "pytest", "_pytest")),
    (("cells.run_cell", "cells.runner", "front.cli", "process.worker.isolation"), ("pytest", "_pytest")),
], ids=["reading and comparing", "runtimes", "replaying", "gating", "running"])  # fmt: skip
def test_modules_do_not_import_what_is_not_theirs(needed, never):
    names = ", ".join(f"conformance.{module}" for module in needed)
    code = f"import sys, {names}; print([name for name in {never!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
