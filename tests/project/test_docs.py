"""The documentation says what the code does: generated pages are current, examples load, links and options exist."""

import argparse
import ast
import importlib
import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
from ruamel.yaml import YAML

from conformance import HOME
from conformance.case.files.case_file import load
from conformance.front.cli import COMMANDS
from conformance.front.commands.schema import schema
from docs import open_site
from tests.kit.runs import run_pytest

ROOT = Path(__file__).parent.parent.parent
FOLDERS = (".", "docs", "docs/guides", "docs/evidence", "cases", "tests")
PAGES = sorted(page for folder in FOLDERS for page in ROOT.glob(f"{folder}/*.md"))
OPTIONS_OF_OTHERS = (
    "--no-deps", "--system-site-packages", "--quick", "--check", "--random-order", "--ff", "--stepwise",
    "--memory-limit", "--nthreads", "--nworkers", "--port", "--remote-python", "--device", "--tag",
)  # fmt: skip
"""Of pip, venv, evidence, tests/doubles/bindings.py, pytest-random-order, pytest's cache, Dask and podman."""
OPTIONS_OF_POLYGRAPHY = (
    "--atol", "--check-error-stat", "--data-loader-script", "--fp-to-fp16", "--fp16", "--input-shapes", "--int8",
    "--load-inputs", "--load-outputs", "--model", "--onnx-outputs", "--onnxrt", "--rtol", "--save-inputs",
    "--save-outputs", "--trt", "--val-range",
)  # fmt: skip
"""And of optimum-cli, which docs/guides/coming-from.md puts beside those of this project."""
_BLOCK = r"^```yaml\n(.*?)^```"
CASES = sorted(ROOT.glob("cases/**/*.yaml"))


@pytest.mark.parametrize("page, maker, function", [
    ("case-reference.md", "make_reference.py", "reference"), ("options.md", "make_options.py", "options"),
    ("records.md", "make_records.py", "records"),
])  # fmt: skip
def test_a_page_that_is_made_is_what_its_maker_makes(page, maker, function):
    made = runpy.run_path(str(ROOT / "docs" / maker))[function]()
    assert (ROOT / "docs" / page).read_text(encoding="utf-8") == made + "\n"


def test_every_figure_of_the_readme_stands_in_the_page_that_it_links():
    """A row of a table without a link of its own is about the page of the row before it."""
    above, page, missing = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Run it")[0], None, []
    for text in re.split(r"\n(?=\|)|\n\n", above):
        linked = re.search(r"\]\((docs/(?:evidence/[\w-]+|benchmarks)\.md)\)", text)
        page = linked[1] if linked else page if text.startswith("|") else None
        if page is not None:
            known = (ROOT / page).read_text(encoding="utf-8").replace(",", "")
            figures = re.findall(r"\d+(?:\.\d+)*", re.sub(r"\([^)]*\)", "", text).replace(",", ""))
            missing += [(page, one) for one in figures if not re.search(rf"(?<![\d.]){re.escape(one)}\b", known)]
    assert missing == []


def test_pages_that_speak_of_a_gpu_know_of_the_run_on_one():
    records = json.loads((ROOT / "docs/evidence/h200-trt8.6/run.json").read_text(encoding="utf-8"))["records"]
    (line,) = re.findall(r".*TensorRT\]\(.*", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert "docs/evidence/tensorrt-gpu.md" in line and "no run" not in line
    guide = (ROOT / "docs/tensorrt.md").read_text(encoding="utf-8")
    assert f"[{len(records)} cells on an H200](evidence/tensorrt-gpu.md)" in guide


def test_the_index_leads_to_every_page():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    pages = [page for page in PAGES if page.is_relative_to(ROOT / "docs") and page.name != "index.md"]
    assert [page.name for page in pages if f"]({page.relative_to(ROOT / 'docs').as_posix()}" not in index] == []


MADE = ("options.md", "case-reference.md", "records.md")
"""With a table of texts in the code."""
ODD_WORDS = r"\b(held (?:against|to)|told|anew|woken|mend(?:ed)?|laid to|owed|is due|parts? first|they part)\b"
"""Others are plainer: compared with, reported, rebuilt, corrected, attributed to, expected, first wrong operator."""
PROSE, UNRELEASED, IN_A_CELL, ENTRIES, BEFORE_A_TABLE = 30_000, 1_500, 40, 40, 120


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def cells(text: str) -> Iterator[str]:
    """What stands in the cells of a page's tables."""
    for line in re.sub(r"^```.*?^```", "", text, flags=re.M | re.S).splitlines():
        if line.startswith("| "):
            yield from re.split(r"(?<!\\)\|", line)[1:-1]


def test_what_a_person_has_to_read_is_not_too_much():
    pages = ["README.md", "CONTRIBUTING.md", *(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md"))]
    pages += [f"docs/guides/{page.name}" for page in (ROOT / "docs" / "guides").glob("*.md")]
    words = {page: len(read(page).split()) for page in pages if page.removeprefix("docs/") not in MADE}
    measured = re.findall(r"^(?:\||Measured on).*", read("docs/benchmarks.md"), re.M)  # which a command writes
    words["docs/benchmarks.md"] -= sum(len(line.split()) for line in measured)
    assert sum(words.values()) <= PROSE, sorted(words.items(), key=lambda one: -one[1])
    unreleased = read("CHANGELOG.md").split("\n## ")[1]
    assert unreleased.startswith("Unreleased") and len(unreleased.split()) <= UNRELEASED
    assert len([*cells(read("docs/glossary.md"))]) // 2 <= ENTRIES + 1  # and the head


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_cell_of_a_table_is_short(page):
    assert [cell for cell in cells(page.read_text(encoding="utf-8")) if len(cell.split()) > IN_A_CELL] == []


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "evidence").glob("*.md")), ids=lambda page: page.name)
def test_evidence_begins_with_a_table(page):
    before, found, _ = page.read_text(encoding="utf-8").partition("\n|")
    assert found and len(before.split()) <= BEFORE_A_TABLE


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_uses_plain_words(page):
    if page.name not in (*MADE, "CHANGELOG.md") and page.parent.name != "evidence":
        prose = re.sub(r"^```.*?^```|^ {4}[^\n]*$|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        assert re.findall(ODD_WORDS, prose) == []


MAKERS = {"Stopped": 1, "stopping": 3, "GraphFinding": 0, "failed": 0, "stop": 0, "End": 1, "broken": 1, "_lost": 1}
"""What makes the error of a record, with the place of its name among the arguments."""


def error_names(file: Path) -> Iterator[str]:
    """Every name that a module gives to an error: as an argument, by way of a variable, or as an attribute."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", None))
            for argument in node.args[MAKERS.get(name, len(node.args)) :][:1]:
                yield from texts(argument, assigned)
    for node in assigned:
        for target, value in pairs(node):
            if isinstance(target, ast.Attribute) and target.attr == "error":
                yield from texts(value, assigned)


def pairs(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=True)
        else:
            yield target, node.value


def texts(value: ast.expr, assigned: list[ast.Assign]) -> Iterator[str]:
    """The texts that an expression may come to; none for what is known at run time only."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value
    elif isinstance(value, ast.IfExp):
        yield from (*texts(value.body, assigned), *texts(value.orelse, assigned))
    elif isinstance(value, ast.BoolOp):
        for part in value.values:
            yield from texts(part, assigned)
    elif isinstance(value, ast.Name):
        for node in assigned:
            for target, given in pairs(node):
                if isinstance(target, ast.Name) and target.id == value.id and not isinstance(given, ast.Name):
                    yield from texts(given, assigned)


def test_the_page_of_error_names_has_those_of_the_code_and_no_others():
    files = [file for file in HOME.rglob("*.py") if "starter" not in file.parts]
    raised = {name for file in files for name in error_names(file)}
    assert {"FrozenDim", "Inconclusive", "NoSuchDraw", "NotNeeded", "Overflow", "Timeout", "WrongNaN"} <= raised
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([\w, ]+) \|", page, re.M)
    assert sorted(name for name, _ in rows) == sorted(raised)


def test_the_published_schema_is_what_the_command_prints():
    published = json.loads((ROOT / "conformance" / "case.schema.json").read_text(encoding="utf-8"))
    assert published == schema()


def test_the_schema_accepts_every_shipped_case_and_refuses_what_the_loader_refuses():
    validator = jsonschema.Draft202012Validator(schema())
    assert len(CASES) > 20
    for file in CASES:
        validator.validate(YAML(typ="safe").load(file.read_text(encoding="utf-8")))
    sound = {"one": {"about": "x", "forward": "x", "inputs": {"x": "float32[3]"}}}
    assert validator.is_valid(sound)
    for wrong in ({"inptus": {}}, {"mode": "training"}, {"inputs": {"x": {"tpye": "float32[3]"}}}, {"seed": -1}):
        assert not validator.is_valid({"one": {**sound["one"], **wrong}}), wrong


BLOCKS = {
    f"{page.name}:{number}": block
    for page in PAGES
    for number, block in enumerate(re.findall(_BLOCK, page.read_text(encoding="utf-8"), re.M | re.S))
}


@pytest.mark.parametrize("name", BLOCKS)
def test_a_case_in_the_docs_loads(name, tmp_path):
    assert len(BLOCKS) >= 4
    file = tmp_path / "case.yaml"
    file.write_text(BLOCKS[name], encoding="utf-8")
    assert load(file)


def test_links_lead_to_files():
    links = [
        (page.name, page.parent / link)
        for page in PAGES
        for link in re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    ]
    assert len(links) > 100 and [(name, place.name) for name, place in links if not place.exists()] == []


def test_options_in_the_docs_exist(tmp_path):
    known = run_pytest(tmp_path, "--help").text
    known += known.replace("--conformance-", "--")
    for name in COMMANDS:
        parser = argparse.ArgumentParser()
        importlib.import_module(f"conformance.front.commands.{name}").arguments(parser)
        known += parser.format_help()
    known += " ".join((*OPTIONS_OF_OTHERS, *OPTIONS_OF_POLYGRAPHY))
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))
    assert named and [option for option in sorted(named) if option not in known] == []


def test_every_test_that_the_table_of_faults_names_is_where_it_says():
    """``file.py::test_name``, or a name alone, in any file; a name that is cut ends with ``…``."""
    files = {file: file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("test_*.py")}
    page = (ROOT / "tests" / "faults.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:\w+/)*\w+\.py)?(?:::)?(test_\w+)?(…)?", page)
    assert sum(bool(test) for _, test, _ in named) > 60
    for place, test, cut in named:
        there = [text for file, text in files.items() if str(file).endswith(f"/tests/{place}") or not place]
        assert there, place
        end = "" if cut else r"\("
        assert not test or any(re.search(rf"def {test}{end}", text) for text in there), (place, test)


@pytest.mark.needs("browser")
def test_opening_the_site_finds_what_is_wrong_with_it(tmp_path):
    """The site itself is built and opened by ``tox run -e docs``, as Sphinx is not in this environment."""
    head = "<!doctype html><meta name='viewport' content='width=device-width'>"
    wide = f"{head}<p style='width: 900px'>wide</p><script>console.error('planted')</script>"
    (tmp_path / "index.html").write_text(wide)
    (tmp_path / "search.html").write_text(f"{head}<p id='search-results'><b class='search-summary'>found 0</b>")
    said = open_site.main(tmp_path) or ""
    assert "index.html is 5" in said and "search.html is" not in said and "console.error" in said
    assert "a search for asinh does not find first-case" in said
