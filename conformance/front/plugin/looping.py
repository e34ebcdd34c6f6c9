"""Tests that run in another order than that in which they were collected."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import pytest


def run_tests(session: pytest.Session, items: Sequence[pytest.Item], later: Iterable[pytest.Item]) -> None:
    """Run tests one after another as pytest's own loop does, and raise as that does where the session is to stop.
    ``later`` are tests that will follow, by which pytest knows what fixtures are still needed."""
    for number, item in enumerate(items, 1):
        following = next(itertools.chain(items[number : number + 1], later), None)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)


def may_run(session: pytest.Session) -> bool:
    """Return whether tests run at all after collection errors.

    pytest's own loop tells of these.
    """
    return not session.testsfailed or bool(session.config.option.continue_on_collection_errors)
