"""``python -m evidence golden``: compares the explanations of failures with those of a file, or writes the file."""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT
from conformance.results.records.environment import code
from evidence.golden import file
from evidence.golden.collect import Work, collect
from evidence.golden.compare import Comparison, compare, table
from evidence.golden.file import Golden
from evidence.golden.rows import GROUPS, Failure, failures

MADE_OF = ("cases", "evidence", "tests/plants")
"""What rows depend on beside the package."""
WORK = ROOT / ".conformance" / "golden.jsonl"


def main(arguments: Sequence[str]) -> int:
    """Run the command. Return 1 where a field differs or a row of the file is gone, and 2 where nothing could be
    compared."""
    options = _parser().parse_args(arguments)
    made_on = file.here()
    work = Work(options.work, state(made_on))
    there = list(failures(options.only))
    if options.write:
        return _write(there, work, made_on, options)
    if not options.file.exists():
        print(f"{options.file} is not there; --write makes it")
        return 2
    golden = file.read(options.file)
    expected = {row.key for row in golden.rows if options.only in (None, row.group)}
    new = [_named(one.key) for one in there if one.key not in expected and one.key not in golden.left_out]
    if options.rows is not None:
        expected &= _selected(golden, options.rows)
    gone = sorted(expected - {one.key for one in there})
    for line in _other_versions(golden, made_on):
        print(line)
    asked = [one for one in there if one.key in expected]
    found = compare(golden, collect(asked, work), made_on)
    _show(found, {"gone": [_named(key) for key in gone], "not in the file": new})
    work.drop([one.key for one in asked])
    if found.differences or gone:
        return 1
    return 0 if found.compared else 2


def state(made_on: Mapping[str, Any]) -> str:
    """Return what rows depend on: the code, the cases and plants, the versions and the processor."""
    digest = hashlib.sha256(code().encode())
    for place in (path for name in MADE_OF for path in sorted((ROOT / name).rglob("*"))):
        if place.suffix in (".py", ".yaml"):
            digest.update(place.relative_to(ROOT).as_posix().encode() + place.read_bytes())
    return json.dumps({"files": digest.hexdigest(), **made_on}, sort_keys=True)


def _selected(golden: Golden, count: int) -> set[tuple[str, str]]:
    if count == file.COUNT:
        return {row.key for row in golden.rows if row.selected}
    return file.select(golden.rows, count)


def _named(key: tuple[str, str]) -> str:
    return ", ".join(key)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m evidence golden", description=__doc__)
    selection = f"only a selection of N rows; {file.COUNT} take 5 minutes at most"
    parser.add_argument("--rows", type=int, metavar="N", help=selection)
    parser.add_argument("--only", choices=[*GROUPS], metavar="GROUP", help=f"only one of {', '.join(GROUPS)}")
    parser.add_argument("--write", action="store_true", help="write all rows of the file, or those of one group")
    parser.add_argument("--file", type=Path, default=file.FILE, help="the file of the rows")
    parser.add_argument("--work", type=Path, default=WORK, help="keeps rows until all are there, to go on from")
    return parser


def _write(there: Sequence[Failure], work: Work, made_on: dict[str, Any], options: argparse.Namespace) -> int:
    kept = Golden(made_on, [])
    if options.only is not None and options.file.exists():
        golden = file.read(options.file)
        if golden.made_on != made_on:
            print("the file was made with other versions or on another processor: write all groups")
            return 2
        others = [row for row in golden.rows if row.group != options.only]
        left_out = {key: why for key, why in golden.left_out.items() if key[0] != options.only}
        kept = Golden(made_on, others, left_out)
    rows = list(collect(there, work))
    file.write(Golden(made_on, [*kept.rows, *rows], kept.left_out), options.file)
    for group in dict.fromkeys(row.group for row in rows):
        own = [row for row in rows if row.group == group]
        whole = sum(not row.unfinished for row in own)
        print(f"{group}: {whole} rows, {sum(row.seconds for row in own):.0f} s of a core")
    for row in rows:
        if row.unfinished:
            print(f"left out, out of time: {_named(row.key)}: {', '.join(row.unfinished)}")
    work.drop([row.key for row in rows])
    return 0


def _other_versions(golden: Golden, made_on: Mapping[str, Any]) -> list[str]:
    was, now = _flat(golden.made_on), _flat(made_on)
    names = [name for name in sorted({*was, *now}) if was.get(name) != now.get(name)]
    return [f"{name}: the file was made with {was.get(name)}, here is {now.get(name)}" for name in names]


def _flat(made_on: Mapping[str, Any]) -> dict[str, Any]:
    return {**made_on["versions"], **{name: value for name, value in made_on.items() if name != "versions"}}


def _show(found: Comparison, missing: Mapping[str, Sequence[str]]) -> None:
    if found.differences:
        print(table(found.differences))
    told = {
        **missing,
        "out of time, not compared": found.unfinished,
        "of another kind of processor, not compared": found.elsewhere,
    }
    for what, names in told.items():
        for name in names:
            print(f"{what}: {name}")
    rows = {one.row for one in found.differences}
    print(f"{found.compared} rows compared, {len(found.differences)} fields of {len(rows)} rows differ")
    for what, names in told.items():
        if names:
            print(f"{len(names)} rows {what}")
