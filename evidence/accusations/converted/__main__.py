"""Make the files, check them, print what came of each, and write the section of the page."""

from __future__ import annotations

import argparse

from benchmarks.common import table, where
from evidence.accusations.converted import section
from evidence.accusations.converted.study import WAYS, rows, study
from evidence.accusations.page import write_page


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m evidence.accusations.converted", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three files, and no section")
    given = parser.parse_args()
    seen = study(given.quick)
    for one in seen.files:
        decibels = "" if one.decibels is None else f", {one.decibels:.1f} dB"
        print(f"{one.path.stem}: {', '.join(f'{way} {one.results[way]}' for way in WAYS)}{decibels}")
        print(*(f"  {line}" for line in one.said), sep="\n", end="\n" * bool(one.said))
    print(table([*rows(seen)]))
    if seen.whole:
        write_page(section.TITLE, section.section_of(seen, where()))


if __name__ == "__main__":
    main()
