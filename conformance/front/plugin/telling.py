"""Call the hooks of other plugins, whose mistakes are told and lose nothing."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.process.errors import display_path, summarize


class OtherPlugins:
    """The plugins that implement a hook of ``hookspecs``."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._raised: dict[str, str] = {}
        """By hook and plugin, what it raised first."""

    def tell(self, hook: str, **what: Callable[[], object]) -> None:
        """Call a hook of each plugin with the configuration and ``what``, which is made for each anew; let pytest's
        ``exit`` pass, and keep all else that is raised."""
        manager = self._config.pluginmanager
        plugins = [each.plugin for each in reversed(getattr(self._config.hook, hook).get_hookimpls())]
        for plugin in plugins:
            call = manager.subset_hook_caller(hook, [other for other in plugins if other is not plugin])
            given = {name: make() for name, make in what.items()}
            try:
                call(config=self._config, **given)
            except (Exception, pytest.fail.Exception, pytest.skip.Exception) as error:
                # whatever the code of others raises, which the end of the run tells
                if isinstance(error, pytest.exit.Exception):
                    raise
                name = str(manager.get_name(plugin))
                of = f"{hook} of {display_path(Path(name)) if name.endswith('.py') else name}"
                self._raised.setdefault(of, f"{summarize(error)} ({_place(error)})")

    def mistakes(self) -> list[str]:
        """Return a sentence about each hook of a plugin that raised; the run is no success then."""
        return [f"{of} raises {said}; the run is whole without it" for of, said in self._raised.items()]


def _place(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(last.filename).name}:{last.lineno}"
