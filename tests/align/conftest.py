"""The fixture that aligns a case."""

from __future__ import annotations

import pytest

from tests.align.support import Trial


@pytest.fixture
def trial(tmp_path) -> Trial:
    return Trial(tmp_path, tmp_path / "store")
