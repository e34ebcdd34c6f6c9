"""A copy of a repository in which defects are planted, with a Python that imports the package from there alone."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

from evidence.defects.listed import Defect

PARTS = ("conformance", "tests", "benchmarks", "evidence", "cases", "conftest.py", "pyproject.toml")
"""What decides which test executes which line."""


def tracked(tree: Path) -> list[Path]:
    """The files of a repository that git knows and that are there, relative to it."""
    listed = subprocess.run(["git", "-C", str(tree), "ls-files", "-z"], capture_output=True, check=True).stdout
    paths = (Path(os.fsdecode(name)) for name in listed.split(b"\0") if name)
    return sorted(path for path in paths if (tree / path).is_file())


def digest_of(tree: Path) -> str:
    """A hash of the package and its tests."""
    digest = hashlib.sha256()
    for path in tracked(tree):
        if path.parts[0] in PARTS:
            digest.update(f"{path.as_posix()}\0".encode() + (tree / path).read_bytes())
    return digest.hexdigest()[:16]


class Copy:
    """The tracked files of a repository in a folder of its own; one defect at a time is written into it."""

    def __init__(self, tree: Path, folder: Path) -> None:
        self.root, self.python = folder / "tree", folder / "environment" / "bin" / "python"
        for path in tracked(tree):
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(tree / path, self.root / path)
        self._own = {entry.name for entry in self.root.iterdir()}
        _make_environment(folder / "environment", self.root)

    @contextlib.contextmanager
    def planted(self, defect: Defect) -> Iterator[None]:
        """Inside the block the copy has the defect; DoesNotApply where it cannot be written into its file."""
        file = self.root / defect.path
        sound = file.read_text(encoding="utf-8")
        self._replace(file, defect.applied(sound))
        try:
            yield
        finally:
            self._replace(file, sound)

    @staticmethod
    def _replace(file: Path, text: str) -> None:
        """Writes a file without the bytecode of what it was: Python tells by seconds whether that is up to date."""
        file.write_text(text, encoding="utf-8")
        Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)

    def tidy(self) -> None:
        """Removes what tests have left, such as stores that another defect must not find."""
        for entry in self.root.iterdir():
            if entry.name not in self._own and entry.name != "__pycache__":
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()


@contextlib.contextmanager
def copy_of(tree: Path) -> Iterator[Copy]:
    """A copy that is there inside the block."""
    with tempfile.TemporaryDirectory(prefix="defects-", ignore_cleanup_errors=True) as folder:
        yield Copy(tree, Path(folder).resolve())


def _make_environment(folder: Path, tree: Path) -> None:
    """A virtual environment with the packages of this one, and the package of the tree before them: some processes of
    the tests drop PYTHONPATH, and would import the package that is installed."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    site = folder / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    own = sysconfig.get_path("purelib")
    (site / "tree.pth").write_text(f"{tree}\nimport site; site.addsitedir({own!r})\n", encoding="utf-8")
    python = folder / "bin" / "python"
    for script in Path(sys.executable).parent.iterdir():
        target = python.parent / script.name
        if target.exists() or script.is_dir():
            continue
        data = script.read_bytes()
        if data.startswith(f"#!{Path(sys.executable).parent}/python".encode()):
            target.write_bytes(b"#!" + os.fsencode(python) + b"\n" + data.partition(b"\n")[2])
            target.chmod(0o755)
        else:
            target.symlink_to(script)
