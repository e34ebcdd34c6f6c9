"""Rules for the code of the package: no circles of imports, few exceptions for the type checker, plain docstrings."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter

from conformance import HOME
from tests.kit.imports import imported, modules

IGNORED = 15
"""The most lines that the type checker may leave out, each with a reason."""

WIDE = {"Exception": 30, "BaseException": 15}
"""The most handlers that take whatever comes; ``errors.attempt`` and ``errors.or_else`` do so for the others."""

QUESTIONS = 20
"""The most docstrings that may open with such a word."""
FILES = modules()


def test_no_modules_import_each_other_nor_for_their_types():
    graph = {file: {other for _, other in imported(file)} for file in FILES}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_no_two_modules_have_one_name():
    names = Counter(file.name for file in FILES if file.name not in ("__init__.py", "__main__.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_what_the_type_checker_leaves_out_has_a_reason():
    every = (line for file in FILES for line in file.read_text(encoding="utf-8").splitlines())
    lines = [line for line in every if "type: ignore" in line]
    assert len(lines) <= IGNORED
    assert [line for line in lines if not re.search(r"type: ignore\[[\w\-, ]+\]  # \w", line)] == []


def caught(tree: ast.Module) -> Iterator[tuple[set[str], int, int]]:
    """The names of what each handler or ``suppress`` takes, with its first line and that of its first statement."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            names = ["BaseException"] if node.type is None else ast.unparse(node.type).strip("()").split(", ")
            yield {*names}, node.lineno, node.body[0].lineno
        elif isinstance(node, ast.With):
            calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
            for call in calls:
                if ast.unparse(call.func).endswith("suppress"):
                    yield {*map(ast.unparse, call.args)}, node.lineno, node.body[0].lineno


def test_few_handlers_take_whatever_comes_and_each_says_what_that_is():
    found = Counter()
    for file in FILES:
        text = file.read_text(encoding="utf-8")
        for names, start, end in caught(ast.parse(text)):
            wide = next((name for name in WIDE if name in names), None)
            if wide is not None:
                found[wide] += 1
                assert any("#" in line for line in text.splitlines()[start - 1 : end]), f"{file}:{start}: what comes?"
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
