"""Fixtures that the tests of planted defects share."""

from __future__ import annotations

from pathlib import Path

import hypothesis
import pytest

from tests.support import Bench

# How long an example takes to draw or to run says something about the host, and nothing about what is tested.
hypothesis.settings.register_profile(
    "any host",
    parent=hypothesis.settings.get_profile(hypothesis.settings.get_current_profile_name()),
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("any host")


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture
def bench(tmp_path: Path, store: Path) -> Bench:
    return Bench(tmp_path, store)
