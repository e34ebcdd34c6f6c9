"""Passes of ONNX Runtime's optimizer switched off, and what that costs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from conformance.case.declaration import Case
from conformance.plan.cell import Cell
from conformance.plan.settings import Settings
from conformance.repairs.trials import Fix, Trials, changed, proving

OPTION = "optimization.disable_specified_optimizers"
"""The session option of ONNX Runtime that takes names of passes, with semicolons between them."""
REPEATS = 30
"""How often the model is run with the passes on and off, in turn."""


def fixes(case: Case, record: Mapping[str, Any], trials: Trials) -> Iterator[Fix]:
    """The passes that the record names, switched off."""
    passes = (record.get("optimizer") or {}).get("passes")
    if not passes:
        return
    config = {**case.says.onnxruntime.config, OPTION: ";".join(passes)}
    other = changed(case, onnxruntime=case.says.onnxruntime.model_copy(update={"config": config}))
    cells = proving(other, record, record["exporter"], record["opset"])
    shown = trials.shown(cells)
    if shown is None:
        return
    ratio = trials.call(cost, cells[-1], dict(case.says.onnxruntime.config), config, trials.store)
    costs = f"; a run takes {ratio:.2f} times as long" if ratio is not None else ""
    said = ", ".join(f"{key}: {value!r}" for key, value in config.items())
    yield Fix(f"switch off {' and '.join(passes)}", f"onnxruntime: {{config: {{{said}}}}}", shown + costs)


def cost(progress: object, cell: Cell, before: dict[str, str], after: dict[str, str], store: Path) -> float:
    """Return how many times as long a run of the cell's model takes with other session options, at the traced sizes:
    the median of ``REPEATS`` pairs."""
    from conformance.checks.conversion import converted_model
    from conformance.checks.models import CellRun
    from conformance.runtimes import opener

    with CellRun.opened(cell, Settings(store=store)) as run:
        stored, libraries, inputs = run.model(), run.libraries(), run.prepared.inputs()
        model = (converted_model(run, stored, refuse=False) if cell.converted else stored).file
        with (
            opener(f"{cell.runtime}", config=before)(model, libraries) as slow,
            opener(f"{cell.runtime}", config=after)(model, libraries) as other,
        ):

            def seconds(session: Any) -> float:
                start = time.perf_counter()
                session.run(inputs)
                return time.perf_counter() - start

            pairs = [(seconds(slow), seconds(other)) for _ in range(REPEATS)]
    return statistics.median(with_off / with_on for with_on, with_off in pairs)
