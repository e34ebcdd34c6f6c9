"""run_cell: one cell from its declaration to its record, in whatever process it is called.

Each check is a sequence of stages. A stage either gives data to the next or raises ``Stopped``; everything
that a module, an exporter or a runtime raises is turned into that here, so that ``run_cell`` never raises
for what a cell did.
"""

from __future__ import annotations

from conformance.cellrun import CellRun
from conformance.checks import CHECKS
from conformance.errors import Stopped, Unavailable
from conformance.expect import settle
from conformance.plan import Cell, expectations
from conformance.progress import Progress
from conformance.record import Record
from conformance.settings import Settings
from conformance.source import Folder, check_needs
from conformance.stages import Stages, stop_record


def run_cell(progress: Progress, cell: Cell, settings: Settings) -> Record:
    """Runs one cell and says what happened. Raises nothing but KeyboardInterrupt."""
    record = cell.record()
    stages = Stages(record, progress, cell.case.folder)
    try:
        check_needs(cell.case)
        with Folder.of(cell.case.folder).active() as folder:
            run = CellRun(cell, settings, record, stages, folder)
            CHECKS[cell.check](run)
    except Unavailable as reason:
        record.status, record.stage, record.reason = "skipped", stages.current, str(reason)
    except Stopped as stop:
        stop_record(record, stop)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a SystemExit of the case's own code, or a mistake of ours
        stop_record(record, stages.stopped_by(error))
    record.seconds = {name: round(seconds, 6) for name, seconds in record.seconds.items()}
    return settle(record, expectations(cell), settings.instructions)
