"""A plugin of pytest, copied beside each run: writes a line as each test begins, fails and ends, so that a run that
is killed at its time limit has said where it was. Needs nothing but pytest."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

FILE = "DEFECTS_OBSERVED"
"""The environment variable that names the file."""
TIERS = ("smoke", "thorough")
"""Markers of tests; a test with neither is of the default tier."""


def _write(**what: Any) -> None:
    with Path(os.environ[FILE]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(what) + "\n")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _write(failed=report.nodeid, when="collect", tier="default", seconds=0.0)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    tier = next((name for name in TIERS if item.get_closest_marker(name)), "default")
    _write(begun=item.nodeid, tier=tier)
    item.user_properties.append(("tier", tier))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        tier = dict(report.user_properties).get("tier", "default")
        _write(failed=report.nodeid, when=report.when, tier=tier, seconds=round(report.duration, 3))
    elif report.when == "teardown":
        _write(ended=report.nodeid)
