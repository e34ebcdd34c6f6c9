"""The fixture that aligns a case."""

from pathlib import Path

import pytest

from tests.front.align.support import Trial


@pytest.fixture(scope="session")
def trial(tmp_path_factory: pytest.TempPathFactory, store: Path) -> Trial:
    return Trial(tmp_path_factory.mktemp("align"), store)
