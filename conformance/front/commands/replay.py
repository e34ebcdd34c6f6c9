"""``conformance replay``: a bundle on this host's runtimes, without PyTorch and without pytest."""

from __future__ import annotations

import argparse
import importlib
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance.front.commands import add_cell_timeout, add_option, add_store
from conformance.results.records.sanitize import tell
from conformance.runtimes.registry import IN_CASES

if TYPE_CHECKING:
    from conformance.results.records.record import Record


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", type=Path, help="what conformance pack wrote, or what a failing cell left")
    add_option(parser, "--runtime", "tensorrt", "what runs the bundle", choices=IN_CASES)
    parser.add_argument("-k", dest="words", default="", metavar="TEXT", help="only cells whose id contains this")
    add_option(parser, "--report", Path("reports/replay"), "folder of the run", type=Path, metavar="DIR")
    parser.add_argument(
        "--require", action="store_true", help="cells that this host cannot run have failed, not been skipped"
    )
    parser.add_argument(
        "--require-provider",
        action="store_true",
        help="a model of which a provider of ONNX Runtime leaves nodes to the CPU has failed",
    )
    parser.add_argument(
        "--allow-libraries",
        action="store_true",
        help="load and run the custom-operator libraries and plugins in the bundle, after naming each; without it "
        "their cells fail",
    )
    add_cell_timeout(parser)
    parser.add_argument(
        "--cluster",
        metavar="ADDRESS",
        help="run it on the workers of a Dask scheduler (tcp://host:8786) that have the runtime",
    )
    add_store(parser, "where engines are kept")


def run(given: argparse.Namespace) -> int:
    """0 where every cell came out as declared, 1 where cells failed, 5 where every cell was skipped."""
    from conformance.cells.replay.replay_bundle import replay, summary
    from conformance.models.bundle.bundle_layout import Bundle
    from conformance.process.errors import UserError

    def show(record: Record) -> None:
        tell(f"{record.status:8} {record.id}")

    bundle = Bundle(given.bundle)
    how: dict[str, Any] = {
        "keep": lambda id: given.words in id, "timeout": given.cell_timeout, "required": given.require,
        "require_provider": given.require_provider, "libraries": given.allow_libraries, "flags": sys.argv[1:],
        "on_record": show,
    }  # fmt: skip
    if given.cluster is not None:
        try:  # by its name: a host that runs bundles has nothing of what is imported there
            replay_on = importlib.import_module("conformance.extras.cluster.bundles").replay_on
        except ImportError as error:
            text = f"--cluster needs Dask ({error}): pip install 'onnx-export-conformance[cluster]'"
            raise UserError(text) from None
        records = replay_on(given.cluster, bundle, given.runtime, given.report, given.store, tell=tell, **how)
    else:
        records = replay(bundle, given.runtime, given.report, given.store / "engines", on_library=tell, **how)
    for line in summary(records, shutil.get_terminal_size((120, 40)).columns):
        tell(line)
    tell(f"the run is in {given.report}")
    if any(record.status in ("failed", "xpassed") for record in records):
        return 1
    if all(record.status == "skipped" for record in records):
        tell("every cell was skipped: that is not a success")
        return 5
    return 0
