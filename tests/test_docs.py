"""The documentation says what the code does: generated pages are current, examples load, links and options exist."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from ruamel.yaml import YAML

from conformance.case.file import load
from conformance.cli import COMMANDS
from conformance.commands.schema import schema

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
OPTIONS_OF_OTHERS = ("--no-deps", "--system-site-packages", "--quick", "--check")
"""Of pip, venv, benchmarks and tests/doubles/record.py."""
_BLOCK = r"^```yaml\n(.*?)^```"
CASES = sorted(ROOT.glob("cases/**/*.yaml"))


def test_the_case_reference_is_what_the_schema_says() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "make_reference.py"))["reference"]()
    assert (ROOT / "docs" / "case-reference.md").read_text(encoding="utf-8") == made + "\n"


def test_the_case_reference_has_a_section_for_every_mapping() -> None:
    reference = (ROOT / "docs" / "case-reference.md").read_text(encoding="utf-8")
    sections = [
        frozenset(re.findall(r"^\| `([\w-]+)` \|", section, re.M))
        for section in re.split(r"^## ", reference, flags=re.M)
    ]
    mappings = {name: frozenset(one["properties"]) for name, one in schema()["$defs"].items() if "properties" in one}
    assert {"TensorRT", "Latency", "Calibration"} <= mappings.keys()
    assert [name for name, keys in mappings.items() if keys not in sections] == []


def test_the_published_schema_is_what_the_command_prints() -> None:
    published = json.loads((ROOT / "conformance" / "case.schema.json").read_text(encoding="utf-8"))
    assert published == schema()


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
def test_the_schema_accepts_every_shipped_case(file: Path) -> None:
    jsonschema.Draft202012Validator(schema()).validate(YAML(typ="safe").load(file.read_text(encoding="utf-8")))


def test_the_schema_refuses_what_the_loader_refuses() -> None:
    validator = jsonschema.Draft202012Validator(schema())
    sound = {"one": {"about": "x", "forward": "x", "inputs": {"x": "float32[3]"}}}
    assert validator.is_valid(sound)
    for wrong in ({"inptus": {}}, {"mode": "training"}, {"inputs": {"x": {"tpye": "float32[3]"}}}, {"seed": -1}):
        assert not validator.is_valid({"one": {**sound["one"], **wrong}}), wrong


def blocks() -> list[tuple[str, str]]:
    return [
        (f"{page.name}:{number}", block)
        for page in PAGES
        for number, block in enumerate(
            re.findall(r"^```yaml\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
        )
    ]


@pytest.mark.parametrize("block", [b for _, b in blocks()], ids=[name for name, _ in blocks()])
def test_a_case_in_the_docs_loads(block: str, tmp_path: Path) -> None:
    file = tmp_path / "case.yaml"
    file.write_text(block, encoding="utf-8")
    assert load(file)


def test_the_docs_have_cases() -> None:
    assert len(blocks()) >= 4


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / link).exists(), link


def test_options_in_the_docs_exist() -> None:
    command = [sys.executable, "-m", "pytest", "--help", "-p", "conformance.plugin"]
    known = subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stdout
    for name in COMMANDS:
        command = [sys.executable, "-m", "conformance.cli", name, "--help"]
        known += subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stdout
    known += " ".join(OPTIONS_OF_OTHERS)
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))
    assert named
    assert [option for option in sorted(named) if option not in known] == []
