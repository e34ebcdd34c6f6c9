"""Run a share of the modules, or some of them by name, and prints the reds with what is known of them."""

from __future__ import annotations

import argparse

from benchmarks.common import table, where
from conformance.results.records.record import Record
from conformance.results.records.text import failure
from evidence.accusations import looked_at
from evidence.accusations.looked_at import judge, verdict_of
from evidence.accusations.page import QUICK, rows_of, write_section
from evidence.accusations.run import PROCESSES, SEEDS, study


def _part(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    part = int(number), int(count)
    if not 1 <= part[0] <= part[1]:
        raise ValueError
    return part


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m evidence.accusations", description=__doc__)
    parser.add_argument("--group", choices=SEEDS, default="usual")
    parser.add_argument("--only", default="*", help="modules by name, with * for many")
    parser.add_argument("--quick", action="store_true", help=f"every {QUICK}th module")
    parser.add_argument("--seeds", type=int, help=f"by default {SEEDS}; those that were run before are kept")
    parser.add_argument("--part", type=_part, metavar="K/N", help="the K-th of N shares, from 1")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    parser.add_argument("--write", action="store_true", help="write the section of the group, of all its modules")
    parser.add_argument("--whole", action="store_true", help="print the whole text of each red")
    given = parser.parse_args()
    if given.write and (given.quick or given.part or given.only != "*"):
        parser.error("--write is about all modules of a group: leave out --quick, --part and --only")
    every = QUICK if given.quick else 1
    seeds = SEEDS[given.group] if given.seeds is None else given.seeds
    seen = study(given.group, seeds=seeds, only=given.only, every=every, part=given.part, processes=given.processes)
    entries = looked_at.read(given.group)
    for red, entry in judge(seen.reds, entries, whole=False).reds:
        place = " ".join(one for one in (red.exporter, red.runtime, red.check) if one)
        print(f"{verdict_of(entry)}: {red.module} {place}: {red.error} ({red.fault}): {red.reason}")
        if given.whole:
            print(failure(Record.from_dict(red.record)), end="\n\n")
    print(table(rows_of(seen, entries)))
    if given.write:
        write_section(seen, where())


if __name__ == "__main__":
    main()
