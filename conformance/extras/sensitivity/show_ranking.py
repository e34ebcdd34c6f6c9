"""``conformance sensitivity``: ranks the nodes of a case (``ranking.rank``) and shows the ranking."""

from __future__ import annotations

import math
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.case.files.declaration import Case
from conformance.case.plan.catalogue import find_case, plan
from conformance.case.plan.cell import Cell
from conformance.extras.sensitivity.ranking import Ranking, of_cell
from conformance.process.errors import Stopped, Unavailable, UserError, display_path
from conformance.results.records.sanitize import literal, tell

if TYPE_CHECKING:
    from rich.console import Console

BAR = 30
"""Characters of the longest bar."""


def sensitivity(given: Namespace) -> None:
    """Print the ranking of a case's nodes, and write it as the SVG file ``picture`` as well, if there is to be one.

    Raises UserError with what the user has to correct.
    """
    picture: Path | None = given.picture
    if picture is not None and (picture.suffix != ".svg" or not picture.absolute().parent.is_dir()):
        raise UserError(f"--picture {picture}: has to be an .svg file in a folder that is there")
    case = find_case(given.case, given.cases or [Path("cases")])
    cell = _cell(case, given.precision, given.exporter, given.opset)
    ranking = _ranked(cell, given.store / "models", given.samples)
    _show(cell, ranking, given.top, picture)


def _cell(case: Case, precision: str, exporter: str | None, opset: int | None) -> Cell:
    cells = [cell for cell in plan(case) if cell.check == "fidelity"]
    cells = [cell for cell in cells if not case.says.precisions[cell.precision].of_others]
    if not cells:
        raise UserError(f"{case.name} converts to no precision: add precisions: {{int8: {{}}}} to the case")
    fitting = [
        cell
        for cell in cells
        if cell.precision == precision and exporter in (None, cell.exporter) and opset in (None, cell.opset)
    ]
    if not fitting:
        have = ", ".join(f"{cell.exporter} {cell.opset} {cell.precision}" for cell in cells)
        raise UserError(f"{case.name} has no such cell; it has {have}")
    return fitting[0]


def _ranked(cell: Cell, store: Path, samples: int) -> Ranking:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from conformance.case.plan.settings import Settings
    from conformance.process.worker.warm import prepare_process

    prepare_process()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("ranking nodes", total=None)

            def on_node(done: int, total: int, node: str) -> None:
                bar.update(task, completed=done, total=total, description=node[-40:])

            return of_cell(cell, Settings(store=store), samples, on_node)
    except (Stopped, Unavailable) as stop:
        if isinstance(stop, Stopped) and stop.fault == "harness":
            raise
        raise UserError(f"{cell.case.name} at {cell.precision}: {stop}") from None


def _show(cell: Cell, ranking: Ranking, top: int, picture: Path | None) -> None:
    from rich.console import Console

    console = Console(record=picture is not None, width=100 if picture is not None else None)
    _print(console, cell, ranking, top)
    if picture is not None:
        console.save_svg(str(picture), title=f"{cell.case.name}, {cell.precision}")
        tell(f"wrote {display_path(picture)}", file=sys.stderr)


def _print(console: Console, cell: Cell, ranking: Ranking, top: int) -> None:
    from rich.markup import escape
    from rich.table import Table

    text = f"{cell.case.name}, {cell.exporter} opset {cell.opset}, {cell.precision}: {ranking.sqnr:.1f} dB"
    console.print(f"{escape(text)}. With one node kept in fp32:", highlight=False)
    table = Table(box=None, pad_edge=False)
    table.add_column("node", overflow="fold")
    table.add_column("operator")
    table.add_column("dB", justify="right")
    table.add_column("gain", justify="right")
    table.add_column()
    # a node that alone loses anything wins infinitely much, which is as long as a bar gets
    most = max((kept.gain for kept in ranking.nodes if math.isfinite(kept.gain)), default=0.0)
    for kept in ranking.nodes[:top]:
        share = min(kept.gain / most, 1.0) if most > 0 else float(kept.gain > 0)
        length = max(round(BAR * share), 0)
        table.add_row(
            escape(literal(kept.node)),
            escape(literal(kept.operator)),
            f"{kept.sqnr:.1f}",
            f"{kept.gain:+.2f}",
            "█" * length,
        )
    console.print(table)
    if len(ranking.nodes) > top:
        console.print(f"and {len(ranking.nodes) - top} more nodes", highlight=False)
    worth = ranking.exclude()
    if worth:
        names = ", ".join(f'"{name}"' for name in worth)
        console.print("\nto keep those that win most in fp32:", highlight=False)
        line = f"precisions: {{{cell.precision}: {{exclude: {{{cell.exporter}: [{names}]}}}}}}"
        console.print(literal(line), markup=False, highlight=False, soft_wrap=True)
    else:
        console.print("\nno node wins back 0.1 dB by itself: the noise comes from all of them", highlight=False)
