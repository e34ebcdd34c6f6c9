"""A plugin: a test marked ``needs`` is skipped where a program is missing, and none starts one without the mark."""

import os
import platform
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.kit import programs

_STANDARD = sysconfig.get_path("stdlib")
_started: set[str] = set()
"""The programs of this host that this process started since the last test ended."""


def pytest_configure() -> None:
    try:
        programs.read_required()
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None
    _listen()


def pytest_runtest_setup(item: pytest.Item) -> None:
    for word in _needs(item):
        if lack := programs.find_lack(word):
            if word in programs.read_required():
                pytest.fail(f"{lack}; {programs.REQUIRE} asks for it", pytrace=False)
            pytest.skip(lack)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a test that started, or whose fixtures started, what may be missing and its mark does not name."""
    # before the test sets PATH
    named = {Path(found).name for word in _needs(item) for found in programs.find(word) if found}
    try:
        yield
    finally:
        started = set(_started)
        _started.clear()
    if surprises := sorted(started - named - {*programs.EVERYWHERE}):
        words = [word for word, need in programs.NEEDS.items() if {*need.programs} & {*surprises}]
        what = f"mark it needs({', '.join(map(repr, words))})" if words else "name that in tests/kit/programs.py"
        pytest.fail(f"the test starts {', '.join(surprises)}: {what}, or do without", pytrace=False)


def _needs(item: pytest.Item) -> list[str]:
    return [word for mark in item.iter_markers("needs") for word in mark.args]


@cache
def _listen() -> None:
    """Note what is started from now on; once for a process, as an audit hook stays."""
    own = [Path(place).resolve() for place in {sys.prefix, tempfile.gettempdir()} - {sys.base_prefix}]

    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("subprocess.Popen", "os.posix_spawn") and not _is_of_others():
            environment = arguments[-1] or os.environ
            found = shutil.which(os.fsdecode(arguments[0]), path=environment.get("PATH"))
            place = Path(found or sys.executable)
            if not place.name.startswith("python") and not any(map(place.resolve().is_relative_to, own)):
                _started.add(place.name)

    sys.addaudithook(hear)


def _is_of_others() -> bool:
    """Return whether Python's ``platform`` or an installed package starts it: they know what to do without.

    Where they do not, the first step of ``.ci/run`` says so, in which there is nothing to start.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if file == platform.__file__ or "site-packages" in file:
            return True
        if not file.startswith((_STANDARD, "<frozen")):
            return False
        frame = frame.f_back
    return False
