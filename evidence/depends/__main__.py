"""Run the ways of some rounds, or some ways, and print their table: a part of ``python -m evidence depends``.

python -m evidence.depends --list
python -m evidence.depends host lowerings --folder /tmp/ways
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.common import table
from evidence.depends.page import rows_of, table_of
from evidence.depends.run import chosen, study
from tests.plants.depends.ways import rounds, ways


def main() -> int:
    """Return 1 where a way proves nothing, is stale, or a sound twin is made again."""
    parser = argparse.ArgumentParser(
        prog="python -m evidence.depends", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="rounds, or ways")
    parser.add_argument("--list", action="store_true", help="print the rounds with their ways, and run nothing")
    parser.add_argument("--folder", type=Path, help="where projects, stores and output of the runs are left")
    given = parser.parse_args()
    if given.list or not given.names:
        for title, these in rounds(ways()).items():
            print(f"{title}: {' '.join(way.name for way in these)}")
        return 0
    unknown = set(given.names) - {word for way in chosen(False) for word in (way.name, way.round)}
    if unknown:
        parser.error(f"there is no round or way {', '.join(sorted(unknown))}")
    outcomes = study(False, tuple(given.names), given.folder)
    print(table_of(outcomes))
    found = [row for row in rows_of(outcomes) if not row.what.startswith("ways to depend")]
    print(table(found), *(f"{one.way.name}: {one.broken}" for one in outcomes if one.broken), sep="\n")
    return int(any(row.met is False for row in found))


if __name__ == "__main__":
    sys.exit(main())
