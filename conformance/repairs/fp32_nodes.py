"""The fewest nodes to keep in fp32 with which a converted model is as good as its case asks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.case.declaration import Case
from conformance.explain.search import grow
from conformance.plan.cell import Cell
from conformance.plan.settings import Settings
from conformance.repairs.trials import Fix, Trials, changed, listed, proving

SAMPLES = 8
"""Inputs that nodes are ranked on."""
TRIED = 24
"""How many sets of nodes are tried at most."""


def fixes(case: Case, record: Mapping[str, Any], trials: Trials) -> Iterator[Fix]:
    """The smallest set of nodes that was found: by rank as many as are needed, and then those taken out again that
    are not."""
    exporter, opset, precision = record["exporter"], record["opset"], record["precision"]
    cells = [cell for cell in plan_of(case, record) if cell.check == "fidelity"]
    ranked = trials.call(ranked_nodes, cells[0], trials.store) if cells else None
    if not ranked:
        return
    settings = case.says.precisions[precision]
    kept = getattr(settings.exclude, exporter)
    told: dict[tuple[str, ...], str | None] = {}

    def shown(nodes: Sequence[str]) -> str | None:
        if tuple(nodes) not in told and len(told) < TRIED:
            exclude = settings.exclude.model_copy(update={exporter: [*kept, *nodes]})
            precisions = {**case.says.precisions, precision: settings.model_copy(update={"exclude": exclude})}
            other = changed(case, precisions=precisions)
            told[tuple(nodes)] = trials.shown(proving(other, record, exporter, opset))
        return told.get(tuple(nodes))

    nodes = grow(ranked, lambda names: shown(names) is not None)
    if nodes:
        paste = f"precisions: {{{precision}: {{exclude: {{{exporter}: {listed([*kept, *nodes])}}}}}}}"
        count = "1 node" if len(nodes) == 1 else f"{len(nodes)} nodes"
        yield Fix(f"keep {count} in fp32", paste, f"{shown(nodes)}; no fewer of these were enough")


def plan_of(case: Case, record: Mapping[str, Any]) -> list[Cell]:
    return proving(changed(case), record, record["exporter"], record["opset"])


def ranked_nodes(progress: object, cell: Cell, store: Path) -> list[str]:
    """The nodes of the cell's converted model: those that overflow first, then by what keeping them in fp32 wins
    back. Raises what converting raises."""
    from conformance.sensitivity.ranking import of_cell

    ranking = of_cell(cell, Settings(store=store), SAMPLES, lambda done, total, node: None)
    gaining = [kept.node for kept in ranking.nodes if kept.gain > 0]
    return list(dict.fromkeys([*ranking.overflow, *gaining]))
