"""``python -m evidence.culprits NUMBER OF EVERY [NAME]``: the plants of part ``NUMBER`` of ``OF``, all of them or
each tenth (``EVERY`` is 10), or those whose name has that text in it; prints a line of JSON for each."""

from __future__ import annotations

import dataclasses
import json
import sys

from evidence.culprits.run import part


def main() -> None:
    number, of, every, *only = sys.argv[1:]
    for outcome in part(int(number), int(of), int(every), *only):
        print(json.dumps(dataclasses.asdict(outcome)), flush=True)


if __name__ == "__main__":
    main()
