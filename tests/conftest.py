"""Fixtures that the tests of planted defects share."""

import faulthandler
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from conformance.diagnose.nodes.other_runtime import forget
from conformance.process.worker.isolation import Worker
from conformance.process.worker.warm import new_worker, one_thread
from conformance.runtimes import telemetry  # noqa: F401  # before a test imports onnxruntime
from tests.kit import needs
from tests.kit.cases import Bench
from tests.kit.pages import join_pages
from tests.kit.runtimes import Alter, altered

# How long an example takes to draw or to run says something about the host, and nothing about what is tested.
# The rest is as in the current profile, which is Hypothesis's own one for CI where it runs there.
hypothesis.settings.register_profile(
    "any host", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any host")

WARNINGS = (
    "error",
    # Cases with script: true ask for torch.jit.script, which the suite offers for as long as torch has it.
    "ignore:`torch.jit.script` is deprecated:FutureWarning",
    # The garbage collector tells of a file that an earlier test left open in whatever test is running by then.
    "default::pytest.PytestUnraisableExceptionWarning",
)
"""Warnings are errors, but for those that are named here with the reason.

They stand here and not among pytest's settings in pyproject.toml, which are those of ``pytest conformance`` in this
checkout too: with ``--isolation none``, what torch warns of would then decide on verdicts.
"""


LONGEST = 900.0
"""Seconds after which a test is taken to hang: the longest takes a minute on a host with nothing else to do."""


def pytest_collection_finish() -> None:
    one_thread()  # as in a worker; with one for each core, small kernels wait for one another
    join_pages()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(needs)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """End the process of a test that hangs: xdist names it and goes on; alone and with ``-s``, its lines are seen."""
    seconds = LONGEST * (8 if item.get_closest_marker("thorough") else 1)
    faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            # First, so that a test that is about a warning, or has to make one, can say otherwise.
            item.add_marker(pytest.mark.filterwarnings(*WARNINGS), append=False)
    _leave_out_thorough(config, items)


def _leave_out_thorough(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests marked ``thorough``, unless ``-m`` or the id of a test asks for them."""
    if config.option.markexpr or any("::" in argument for argument in config.args):
        return
    kept, left_out = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        (left_out if item.get_closest_marker("thorough") else kept).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """A process in which a module of tests tries changed cases."""
    with new_worker() as found:
        yield found


@pytest.fixture
def bench(request: pytest.FixtureRequest, tmp_path: Path, store: Path) -> Bench:
    own = request.node.get_closest_marker("own_store")
    return Bench(tmp_path, tmp_path / "store" if own else store)


@pytest.fixture(autouse=True)
def nothing_known() -> None:
    """Runtimes of one test are others than those of another."""
    forget()


@pytest.fixture
def break_opener(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str, Alter], None]:
    """``break_opener(module, "open_model", alter)``: what ``alter`` makes of a runtime's outputs."""

    def break_(module: Any, name: str, alter: Alter) -> None:
        monkeypatch.setattr(module, name, altered(getattr(module, name), alter))

    return break_
