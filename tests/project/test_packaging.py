"""What the package says of itself: versions, and which dependencies a replay has on Python 3.10."""

import ast
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tomllib
from ruamel.yaml import YAML

from conformance import HOME, __version__
from tests.kit import wheel
from tests.kit.imports import imported

ROOT = Path(__file__).parent.parent.parent
OLDEST = (3, 10)
"""The Python that a replay runs with; the rest takes the next one."""
LATER_ONLY = re.compile(r"""; python_version >= (['"])3\.11\1$""")
OF_LATER_PYTHON = ("tomllib",)
"""Modules of the standard library that the oldest Python does not have."""
OF_LATER_TYPING = {
    "Never", "NotRequired", "Required", "Self", "TypeVarTuple", "Unpack", "assert_never", "override", "reveal_type",
}  # fmt: skip
"""Names of ``typing`` that it does not have either."""

BROUGHT_BY = {"ruamel": "ruamel.yaml", "markupsafe": "jinja2", "pydantic_core": "pydantic",
              "xdist": "pytest_xdist", "_pytest": "pytest", "cuda": "cuda_python"}  # fmt: skip
"""Modules that come with a package of another name."""


def project() -> dict[str, Any]:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return dict(tomllib.loads(text)["project"])


def needed_by_a_replay() -> set[Path]:
    """The modules that ``conformance replay`` may import, at once or while it runs."""
    found = {HOME / "__main__.py", HOME / "front" / "cli.py"}
    waiting = [HOME / "front" / "commands" / "replay.py", *HOME.glob("runtimes/**/*.py")]
    waiting += [other for file in found for _, other in imported(file)]
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            packages = (folder / "__init__.py" for folder in file.parents if folder.is_relative_to(HOME))
            waiting += [other for _, other in imported(file)] + [package for package in packages if package.is_file()]
    return found


def outside(file: Path) -> Iterator[str]:
    """What a module imports that is not of this package."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"), feature_version=OLDEST)):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            names = [str(node.module)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        yield from (name.partition(".")[0] for name in names)


def test_what_a_replay_does_not_need_is_not_installed_where_only_a_replay_runs():
    assert project()["requires-python"].startswith(f">={OLDEST[0]}.{OLDEST[1]},")
    files = needed_by_a_replay()
    assert {HOME / "cells" / "replay" / "replay_bundle.py", HOME / "compare" / "judges.py"} <= files
    names = {name for file in files for name in outside(file)}
    assert not names & {*OF_LATER_PYTHON}
    needed = names - {*sys.stdlib_module_names, HOME.name}
    on_the_oldest = {
        re.split(r"[^\w.-]", line)[0] for line in project()["dependencies"] if not LATER_ONLY.search(line)
    }
    optional = {"tensorrt", "pycuda", "cuda"}
    assert needed - optional == on_the_oldest
    of_typing = {
        alias.name
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module == "typing"
        for alias in node.names
    }
    assert "Any" in of_typing and not of_typing & OF_LATER_TYPING


def test_no_module_of_the_standard_library_has_a_substitute_that_nobody_declares():
    declared = {re.split(r"[^\w.-]", line)[0].replace("-", "_") for line in project()["dependencies"]}
    for lines in project()["optional-dependencies"].values():
        declared |= {re.split(r"[^\w.-]", line)[0].replace("-", "_") for line in lines}
    files = [file for file in HOME.rglob("*.py") if "starter" not in file.parts]
    imports = {name for file in files for name in outside(file)} - {*sys.stdlib_module_names, HOME.name}
    assert {name for name in imports if BROUGHT_BY.get(name, name) not in declared} == set()


def test_the_version_is_the_same_everywhere():
    cited = YAML(typ="safe").load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    latest = re.findall(r"^## (\d[\w.]*)$", changes, re.M)[0]
    assert cited["version"] == latest == __version__ and cited["license"] == project()["license"] == "Apache-2.0"


def test_a_tag_makes_a_release_only_of_the_version_that_the_package_and_the_changelog_name(tmp_path):
    changes = tmp_path / "CHANGELOG.md"
    changes.write_text("# Changelog\n\n## Unreleased\n\n## 1.2.3\n", encoding="utf-8")
    for tag, version, refused in (
        ("v1.2.3", "1.2.3", None),
        ("v1.2.4", "1.2.3", "v1.2.3"),
        ("v1.2", "1.2", "'## 1.2'"),
    ):
        trouble = wheel.trouble_of_release(tag, version, changes)
        assert refused is trouble is None or refused in str(trouble)


def test_the_wheel_holds_the_package_and_nothing_else(tmp_path):
    about = [f"net-1.0.dist-info/{name}" for name in wheel.ABOUT]
    whole = [*wheel.of_package(), *about]
    assert {"conformance/front/cli.py", "conformance/case.schema.json", "conformance/results/report/page.css"} <= {
        *whole
    }
    for names, said in (
        (whole, "None"),
        (whole[1:], f"lacks: {whole[0]}"),
        ([*whole, "tests/a.py"], "too much: tests/a"),
    ):
        archive = tmp_path / "net-1.0-py3-none-any.whl"
        with zipfile.ZipFile(archive, "w") as opened:
            for name in names:
                opened.writestr(name, "")
        assert said in str(wheel.trouble_of_wheel(archive))


def test_a_python_that_is_too_old_is_told_which_is_needed():
    """Of a checkout, which no installer refuses: the lines before the check have to be read by Python 3.8."""
    main = (HOME / "__main__.py").read_text(encoding="utf-8")
    for text in (main, (HOME / "__init__.py").read_text(encoding="utf-8")):
        ast.parse(text, feature_version=(3, 8))
    assert main.index("sys.version_info < (3, 10)") < main.index("from conformance.front.cli")
