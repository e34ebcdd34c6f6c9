"""The pytest plugin as every project of its environment loads it: options, and hooks of the suite where it is run.

pytest imports this module in each of its sessions, mostly of tests that have nothing to do with this package: what
only the suite needs is imported where pytest is to collect it, and nothing else of a session is touched.
"""

from __future__ import annotations

import copy
import sys
from importlib.metadata import entry_points
from typing import Any

import pytest

from conformance.front.plugin import declared_options, hookspecs


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    config: Any = pluginmanager.get_plugin("pytestconfig")
    own_suite = declared_options.names_suite(config.invocation_params.args)
    declared_options.add(parser, short=own_suite and not entry_points(group="pytest11", name=__name__))


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(hookspecs)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, parser: pytest.Parser, args: list[str]) -> None:
    """Write short names of options in full: registered, they could meet options of the user's ``conftest.py``. Those
    of ``pyproject.toml`` go before, so that the command line has the last word."""
    if declared_options.names_suite(args):
        from conformance.front import standing_options
        from conformance.process.errors import UserError
        from conformance.process.worker.reserved import unhide

        args[:] = declared_options.rename(args)
        given = parser.parse_known_args(args, namespace=copy.copy(early_config.option))
        paths = ["--conformance-cases"] if given.conformance_run and len(given.file_or_dir) > 1 else []
        try:
            unhide()
            here, prefix = early_config.invocation_params.dir, declared_options.PREFIX
            words = standing_options.options(here, [*args, *paths], prefix)
        except UserError as error:
            raise pytest.UsageError(str(error)) from None
        args[:0] = early_config.option.conformance_standing = words
        early_config.known_args_namespace = parser.parse_known_args(args, namespace=copy.copy(early_config.option))


def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """End ``conformance run`` with a sentence where there is no case file: nothing that a test could say."""
    if config.getoption("conformance_run") and not (config.option.help or config.option.version):
        from conformance.front.plugin.options import Options
        from conformance.results.records.sanitize import tell

        text = Options(config).without_cases()
        if text:
            tell(f"conformance run: {text}", sys.stderr)
            return 2
    return None


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    late = config.pluginmanager.hasplugin("funcmanage")  # the session has begun: a conftest.py loads this
    if not late and declared_options.may_collect_suite(config):
        from conformance.front.plugin import suite_hooks

        config.pluginmanager.register(suite_hooks, "conformance-suite")
