"""A scheduler with one worker that all tests share which do not harm them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.extras.cluster.support import Loopback, loopback


@dataclass(frozen=True)
class Shared:
    """A cluster whose worker ``fits``."""

    cluster: Loopback
    address: str
    worker: int
    """The process of the worker."""


@pytest.fixture(scope="package")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with loopback(tmp_path_factory.mktemp("shared")) as cluster:
        address = cluster.scheduler()
        worker = cluster.workers(address, "--no-nanny", "--name", "fits")
        yield Shared(cluster, address, worker.pid)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Loopback]:
    """A cluster of the test's own, which it may harm."""
    (tmp_path / "cluster").mkdir()
    with loopback(tmp_path / "cluster") as started:
        yield started
