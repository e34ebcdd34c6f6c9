"""Build the wheel and the sdist, hold them to what they may contain, and use the wheel where nothing else is.

``tox run -e package`` does all of it, which needs ``build`` and ``twine``. Nothing of the package is imported here.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import zipfile
from collections.abc import Collection, Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = "conformance"
OF_PACKAGE = (".py", ".csv", ".html", ".css", ".js", "py.typed", ".json", "starter/case.yaml")
"""The ends of the names of files that belong into the package, each of them in both archives, and nothing else."""
ABOUT = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE", "top_level.txt")
"""The files beside the package that the wheel has, in its folder of metadata."""
TO_BUILD = (
    "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "constraints.txt", "tox.ini",
    "conftest.py", "tests/conftest.py", "tests/kit/cases.py", "cases/README.md", "docs/index.md",
    "tests/kit/wheel.py", "benchmarks/__main__.py", "evidence/__main__.py", ".ci/run", "reports/baseline.jsonl",
)  # fmt: skip
"""Files without which the sdist could not be built, or its tests not run."""
NEVER = re.compile(r"(^|/)(__pycache__|\.[a-z]+_cache|\.conformance|\.tox|\.venv|build|dist)(/|$)|\.py[cod]$")
"""The folders that are made on the way, and belong into no archive."""

MODELS = """
import sys
import numpy as np, onnx
from onnx import TensorProto, helper, numpy_helper

weights = numpy_helper.from_array(np.random.default_rng(0).normal(size=(5, 4)).astype("f4"), "w")
sides = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", n]) for name, n in (("x", 5), ("y", 4))]
for file, operator in (("net.onnx", "Relu"), ("wrong.onnx", "Sigmoid")):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node(operator, ["a"], ["y"])]
    graph = helper.make_graph(nodes, "net", sides[:1], sides[1:], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), file)
"""
"""Writes a model, and one that computes something else."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.kit.wheel", description=__doc__)
    parser.add_argument("--tag", help="a release's tag, which has to name the version and a part of the changelog")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where to leave both archives")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel, sdist = built(folder / "dist")
        version = wheel.name.split("-")[1]
        if options.tag is not None and (trouble := trouble_of_release(options.tag, version, ROOT / "CHANGELOG.md")):
            sys.exit(trouble)
        run([sys.executable, "-m", "twine", "check", "--strict", wheel, sdist])
        for archive, trouble in ((wheel, trouble_of_wheel(wheel)), (sdist, trouble_of_sdist(sdist))):
            print(f"{archive.name}: {archive.stat().st_size / 1e6:.1f} MB, {trouble or 'holds what it should'}")
            if trouble:
                sys.exit(1)
        python = environment(folder / "environment", wheel, "--constraint", ROOT / "constraints.txt")
        run([python, "-c", MODELS], folder)
        for words, code, said in (
            (["--version"], 0, version),
            (["doctor"], 0, "onnxruntime: runs here"),
            (["check", "net.onnx"], 0, "right: onnxruntime in fp32, fp16"),  # int8 saturates on some processors
            (["check", "net.onnx", "wrong.onnx", "--precision", "fp32"], 1, "FAILED  accuracy"),
        ):
            start = time.perf_counter()
            done = subprocess.run(
                [python.parent / "conformance", *words], cwd=folder, env=clean(), capture_output=True, text=True
            )
            print(f"conformance {' '.join(words)}: exit code {done.returncode}, {time.perf_counter() - start:.1f} s")
            if done.returncode != code or said not in done.stdout:
                sys.exit(f"expected exit code {code} and '{said}':\n{done.stdout}{done.stderr}")
        if options.keep is not None:
            shutil.copytree(wheel.parent, options.keep, dirs_exist_ok=True)


def trouble_of_release(tag: str, version: str, changelog: Path) -> str | None:
    """Say why a tag makes no release: it names another version, or one that the changelog says nothing of."""
    if tag != f"v{version}":
        return f"the tag {tag} is not v{version}, which the package says (conformance/__init__.py)"
    if not re.search(rf"^## {re.escape(version)}$", changelog.read_text(encoding="utf-8"), re.M):
        return f"CHANGELOG.md has no part '## {version}'"
    return None


def built(folder: Path) -> tuple[Path, Path]:
    """Return the wheel and the sdist of this checkout, built in a copy of it: builds leave folders behind."""
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name) / "checkout"
        shutil.copytree(
            ROOT, copy, ignore=shutil.ignore_patterns(".git", ".tox", ".venv", "__pycache__", "*.egg-info")
        )
        run([sys.executable, "-m", "build", "--outdir", folder, copy])
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def trouble_of_wheel(wheel: Path) -> str | None:
    """Say what is missing in a wheel or too much; None where it holds the package and nothing else."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    metadata = f"{'-'.join(wheel.name.split('-')[:2])}.dist-info"
    return _difference(names, {*of_package(), *(f"{metadata}/{name}" for name in ABOUT)})


def trouble_of_sdist(sdist: Path) -> str | None:
    """Say what is missing in an sdist or too much; None where it can be built and tested, and has no leftovers."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = {*of_package(), *TO_BUILD}
    leftovers = {name for name in names if NEVER.search(name)}
    return _difference((names & needed) | leftovers, needed)


def of_package() -> Iterable[str]:
    files = (file.relative_to(ROOT).as_posix() for file in (ROOT / PACKAGE).rglob("*") if file.is_file())
    return [name for name in files if name.endswith(OF_PACKAGE) and not NEVER.search(name)]


def _difference(names: Collection[str], wanted: Collection[str]) -> str | None:
    missing, extra = sorted(set(wanted) - set(names)), sorted(set(names) - set(wanted))
    told = [f"{what}: {', '.join(some[:5])}" for what, some in (("lacks", missing), ("has too much", extra)) if some]
    return "; ".join(told) or None


def environment(folder: Path, *packages: Path | str) -> Path:
    """Return the Python of a new environment with these packages, or options of pip, and what they need."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    run([python, "-m", "pip", "install", "--quiet", "--no-cache-dir", *packages])
    return python


def clean() -> dict[str, str]:
    """Return the environment without what would have the checkout imported in place of the wheel."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def run(words: Iterable[Path | str], folder: Path | None = None) -> None:
    """Run a command that has to end well."""
    subprocess.run([*map(str, words)], cwd=folder, env=clean(), check=True)


if __name__ == "__main__":
    main()
