"""``conformance clean``: frees what a store has kept."""

from __future__ import annotations

import argparse
import shutil

from conformance.front.commands import add_store


def arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser, "the store")
    parser.add_argument(
        "--limit", metavar="SIZE", help="only what was not used for longest, until the store is no larger, as in 5GiB"
    )
    parser.add_argument("--leftovers", action="store_true", help="only what killed runs left unfinished")


def run(given: argparse.Namespace) -> int:
    """Remove the whole store, failing draws too, where neither a limit nor the leftovers are asked for."""
    from conformance.process.disk.stores import bytes_of, check_is_store, in_use, size_of, tidy
    from conformance.process.errors import UserError, display_path

    if given.limit is not None and given.leftovers:
        raise UserError("--limit removes the leftovers too: give one of --limit and --leftovers")
    limit = None if given.limit is None else bytes_of(given.limit)
    check_is_store(given.store)
    name = display_path(given.store)
    if limit is not None or given.leftovers:
        freed = tidy(given.store) if limit is None else tidy(given.store, limit)
        print(f"{name}: freed {size_of(freed.bytes)} of {freed.entries} entries; {size_of(freed.left)} are left")
        return 0
    if in_use(given.store):
        raise UserError(f"{name}: a run uses it; wait until it has ended, or give a --limit")
    freed = tidy(given.store, 0)
    shutil.rmtree(given.store)
    print(f"{name}: freed {size_of(freed.bytes)} of {freed.entries} entries, and removed it with its failing draws")
    return 0
