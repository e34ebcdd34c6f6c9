"""Fixtures that the tests of planted defects share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import Bench


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture
def bench(tmp_path: Path, store: Path) -> Bench:
    return Bench(tmp_path, store)
