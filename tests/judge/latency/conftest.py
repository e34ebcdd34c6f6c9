"""What every test of latencies runs with."""

import gc

import pytest


@pytest.fixture(scope="package", autouse=True)
def little_to_collect():
    """Each measurement collects garbage first, which takes longer than the simulation among all that pytest holds."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
