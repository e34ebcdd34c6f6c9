"""Put together what one pytest session knows of the suite."""

from __future__ import annotations

import copy
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from conformance.front.plugin.clustered import Clustered, check_options
from conformance.front.plugin.explaining import Explaining
from conformance.front.plugin.gating import Gating
from conformance.front.plugin.options import refusing
from conformance.front.plugin.pooled import Pooled
from conformance.front.plugin.session_parts import Parts, end_with_run
from conformance.front.plugin.session_store import StoreHooks
from conformance.front.plugin.writing import Writing
from conformance.process.errors import display_path, has_torch, summarize

if TYPE_CHECKING:
    from conformance.process.worker.isolation import Worker
    from conformance.results.records.findings import Finding


class SessionParts(Parts):
    """The parts of one pytest session."""

    def __init__(self, config: pytest.Config) -> None:
        """UsageError where the options cannot be used."""
        if any(Path(argument.partition("::")[0]).name == "conformance" for argument in config.args):
            end_with_run(config)  # the suite was named, as it mostly is; in other sessions it is met while collecting
        super().__init__(config)
        check_options(self.options)
        self.clustered: Clustered | None = None
        """Where the cells run on a cluster."""
        if self.options["cluster"] is not None:
            self.clustered = self.running.clustered = Clustered(self)
        workers = self.options.cell_workers()
        self.pooled = Pooled(self, workers) if workers > 1 else None
        """Where cells run in several workers of this process."""
        self.writing = Writing(self.options, self.planning.cut, self.clustered)
        self.gating = Gating(self.options)
        self.keeping = StoreHooks(self.options)
        self.explaining = Explaining(self, self.writing, self.workers)
        self.others = OtherPlugins(config)
        self.mixed_up = False
        """Whether a test came with the record of another cell."""

    @property
    def has_cells(self) -> bool:
        """Return whether the suite is part of this session, or ran under xdist."""
        return self.planning.collected or bool(self.writing.records)

    def begin(self, ids: Sequence[str]) -> None:
        """Called in the process of the terminal once it is known which cells will be run. UsageError where there can
        be no store, or the run cannot be written, as where another one writes its records there, and where PyTorch is
        not installed, which a cell needs."""
        if not self.options.config.option.collectonly and not self.keeping.begun:
            if self.clustered is None and not has_torch():
                self._refuse_without_torch(ids)
            self.keeping.begin()
            self.writing.begin()
            self.others.tell("pytest_conformance_cells", cells=lambda: [*filter(None, map(self.planning.named, ids))])

    def _refuse_without_torch(self, ids: Sequence[str]) -> None:
        from conformance.case.plan.catalogue import refuse_without_torch

        with refusing():
            refuse_without_torch(filter(None, map(self.planning.named, ids)))

    def finish(self, exitstatus: int | pytest.ExitCode, *, broken_off: bool) -> int | pytest.ExitCode:
        """End the run in the process of the terminal; the exit status, not success where nothing was proved."""
        if self.planning.may_be_empty() and self.has_cells and exitstatus != pytest.ExitCode.USAGE_ERROR:
            self.writing.begin()
        if exitstatus in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR):
            self.explaining.leave("the run was broken off")
        else:
            self.explaining.run()
            if self.clustered is not None:
                self.explaining.name_folders()
        self.close(finished=not broken_off)
        records = self.writing.records
        if self.gating.asked_for and records:
            self.gating.compare()
        if self.has_cells:
            self.others.tell("pytest_conformance_findings", findings=self._findings)
        if exitstatus != pytest.ExitCode.OK or not self.has_cells:
            return exitstatus
        failed = self.mixed_up or bool(self.others.mistakes())
        if failed or self.writing.trouble is not None or self.writing.unmet() or self.gating.regressions:
            return pytest.ExitCode.TESTS_FAILED
        if self.writing.all_skipped() and not (records == [] and self.planning.may_be_empty()):
            return pytest.ExitCode.NO_TESTS_COLLECTED
        return exitstatus

    def _findings(self) -> list[Finding]:
        from conformance.results.records.findings import findings

        return findings(copy.deepcopy([*self.explaining.red.values()]))

    def workers(self, most: int) -> list[Worker]:
        """Return workers that do nothing, up to so many: those that ran the cells where there are any yet."""
        from conformance.process.worker.warm import new_worker

        own = [] if self.pooled is None else self.pooled.idle()
        own = own or self.running.idle()
        if own:
            return own[:most]
        count = max(self.options.cell_workers(), self.ordering.workers if self.clustered is None else 1)
        memory, dynamo = self.options.cell_memory(), self.options.may_need_dynamo()
        return [new_worker(memory, dynamo=dynamo).__enter__() for _ in range(min(count, most))]

    def close(self, *, finished: bool = True) -> None:
        """End the worker and the run file."""
        self.saying.close()
        self.writing.close(finished=finished)  # before what takes a while, in which a second Ctrl-C may come
        if self.pooled is not None:
            self.pooled.close()
        self.running.close()
        if self.clustered is not None:
            self.clustered.close()


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
