"""Joining the runs of several jobs into one."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.process.errors import UserError, display_path
from conformance.results.baseline.change import Run
from conformance.results.baseline.shards import parse_shard
from conformance.results.records.record import Record
from conformance.results.records.record_types import Environment, Header, Shard
from conformance.results.records.run_file import RunWriter, read_run

_OF_ONE_JOB = ("--shard", "--report", "--store")
"""Options that differ from job to job and say nothing about which cells there are."""


@dataclass(frozen=True)
class MergedPart:
    """A run that is merged, named by its place."""

    name: str
    header: Header
    records: Sequence[Record]

    @property
    def environment(self) -> Environment:
        return self.header.get("environment") or {}

    @property
    def shard(self) -> Shard | None:
        return self.header.get("shard")

    @property
    def flags(self) -> list[str]:
        return list(self.environment.get("flags") or [])

    @property
    def finished(self) -> bool:
        return "seconds" in self.header


def merge(runs: Sequence[Path], out: Path, *, partial: bool = False, allow_mixed: bool = False) -> Run:
    """Write the folder ``out`` with all cells of ``runs``, and return the run that it holds.

    A cell that several runs have is kept once, where they agree; where some could only skip it, the verdict of a run
    that ran it counts. The header says in ``shards`` what each run was; its ``seconds`` are those of the longest run.

    Raises UserError where runs disagree about a cell; where a run did not finish, or a shard is missing by the
    ``--shard`` of the others (unless ``partial``; the cells that nobody ran are then missing here too, and vanished
    for a comparison); where versions or this package's code differ (unless ``allow_mixed``; the header then has both
    versions); where case files or other files that cells used are not the same; and where shards were not cut from
    the same cells by the same durations.
    """
    if not runs:
        raise UserError("there is no run to merge")
    resolved = [_folder(place) for place in runs]
    for place, folder in zip(runs, resolved, strict=True):
        if folder == Path(os.path.realpath(out)):
            raise UserError(f"{display_path(place)}: would be overwritten by what is merged; give another folder")
    if len(set(resolved)) != len(resolved):
        raise UserError("one run is given twice")
    parts = [MergedPart(display_path(place), *read_run(place)) for place in runs]
    unfinished = [part.name for part in parts if not part.finished]
    missing = [f"shard {text}" for text in _missing(parts)]
    if not partial:
        _refuse_parts(unfinished, missing)
    if not allow_mixed:
        _refuse_mixed(parts)
        _refuse_two(parts, "conformance itself", _own_code)
    _refuse_two(parts, "the case files", lambda part: None if part.shard is None else part.shard.get("files"))
    _refuse_other_files(parts)
    _refuse_other_cuts(parts)
    _write(parts, out, [*unfinished, *missing])
    del parts  # or all records would be in memory twice
    return read_run(out)


def _write(parts: Sequence[MergedPart], out: Path, lacking: Sequence[str]) -> None:
    records = _joined(parts)
    writer = RunWriter(out, _header(parts, lacking))
    for record in records:
        writer.add(record.as_dict())
    writer.close(max((float(part.header["seconds"]) for part in parts if part.finished), default=0.0))


def _folder(place: Path) -> Path:
    return Path(os.path.realpath(place if place.is_dir() else place.parent))


def _missing(parts: Iterable[MergedPart]) -> list[str]:
    """Shards such as ``3/4`` that no part ran, though the arguments of the parts say how many there are."""
    given = [text for part in parts for text in _values_of("--shard", part.flags)]
    have = {parse_shard(text) for text in given}
    return [f"{index}/{count}" for count in sorted({count for _, count in have}) for index in range(1, count + 1)
            if (index, count) not in have]  # fmt: skip


def _refuse_parts(unfinished: Sequence[str], missing: Sequence[str]) -> None:
    if unfinished:
        raise UserError(
            f"{unfinished[0]}: the run did not finish (it has no run.json with seconds); run it again, or allow a "
            "partial merge"
        )
    if missing:
        raise UserError(f"{missing[0]} is missing; give all shards, or allow a partial merge")


def _refuse_other_cuts(parts: Sequence[MergedPart]) -> None:
    """Shards of so many have to be of the same cells, by the same durations, or some cells are in none of them."""
    cuts: dict[int, tuple[MergedPart, Shard]] = {}
    for part in parts:
        shard = part.shard
        if not shard:
            continue
        other, first = cuts.setdefault(shard["count"], (part, shard))
        if first["cut"] != shard["cut"]:
            cells = (first["cells"], shard["cells"])
            what = f"of {cells[0]} and of {cells[1]} cells" if cells[0] != cells[1] else "in different ways"
            raise UserError(
                f"{other.name} and {part.name} are parts {what}, so that cells may be in neither: give all shards "
                "the same cases, options and --shard-durations"
            )


def _refuse_two(parts: Sequence[MergedPart], what: str, state: Callable[[MergedPart], str | None]) -> None:
    """Parts that say so have to be made of one state of something."""
    known = [(part, found) for part in parts if (found := state(part)) is not None]
    for part, found in known[1:]:
        if found != known[0][1]:
            raise UserError(
                f"{known[0][0].name} and {part.name} were made from two states of {what}: run both again from one"
            )


def _own_code(part: MergedPart) -> str | None:
    return part.environment.get("code")


def _refuse_other_files(parts: Sequence[MergedPart]) -> None:
    """Cells of all parts have to have used the same files."""
    known: dict[str, tuple[str, MergedPart]] = {}
    for part in parts:
        for record in part.records:
            folder = os.path.dirname(record.source.get("file") or "")  # noqa: PTH120
            for name, digest in ((record.depends or {}).get("files") or {}).items():
                file = os.path.normpath(os.path.join(folder, name))  # noqa: PTH118
                before = known.setdefault(file, (digest, part))
                if before[0] != digest and before[1] is not part:
                    names = f"{before[1].name} and {part.name}"
                    raise UserError(f"{names} were made from two states of {file}: run both again from one")


def _refuse_mixed(parts: Sequence[MergedPart]) -> None:
    for name in _packages(parts):
        versions = {version: part.name for part in reversed(parts) if (version := _version(part, name)) is not None}
        if len(versions) > 1:
            told = " and ".join(f"{version} in {where}" for version, where in sorted(versions.items()))
            raise UserError(
                f"{name} is {told}: one run has one version of each package; run them alike, or allow mixed versions"
            )


def _packages(parts: Iterable[MergedPart]) -> list[str]:
    return list(
        dict.fromkeys(["conformance", *(name for p in parts for name in p.environment.get("versions") or {})])
    )


def _version(part: MergedPart, package: str) -> str | None:
    """None where the package is not installed, which conflicts with no version: only a GPU host has TensorRT."""
    if package == "conformance":
        return part.environment.get("conformance")
    return (part.environment.get("versions") or {}).get(package)


def _joined(parts: Iterable[MergedPart]) -> list[Record]:
    kept: dict[str, tuple[MergedPart, Record]] = {}
    for part in parts:
        for record in part.records:
            name = record.id
            if name not in kept or _says_less(kept[name][1], record):
                kept[name] = (part, record)
            elif record.status != "skipped" and _verdict(record) != _verdict(kept[name][1]):
                first, first_record = kept[name]
                raise UserError(
                    f"{name}: {_words(first_record)} in {first.name}, {_words(record)} in {part.name}; "
                    "run the cell alone to see which is right, and the shards without overlap"
                )
    return [record for _, record in kept.values()]


def _says_less(record: Record, later: Record) -> bool:
    """Return whether the record of a ``later`` part counts in place of ``record``.

    It does where this one is skipped and that one is not, or may have measured a latency, which this one has not (a
    budget of time that cannot be decided is skipped too).
    """
    return record.status == "skipped" and (later.status != "skipped" or record.latency is None)


def _verdict(record: Record) -> tuple[str | None, ...]:
    return record.status, record.stage, record.error, record.fault


def _words(record: Record) -> str:
    return " ".join(str(word) for word in _verdict(record) if word)


# ---- header --------------------------------------------------------------------------------------------


def _header(parts: Sequence[MergedPart], unfinished: Sequence[str]) -> dict[str, Any]:
    common = [_without(part.flags) for part in parts]
    versions = {name: _both([_version(p, name) for p in parts]) for name in _packages(parts) if name != "conformance"}
    environment = {
        **parts[0].environment,
        "conformance": _both([part.environment.get("conformance") for part in parts]),
        "python": _both([part.environment.get("python") for part in parts]),
        "platform": _both([part.environment.get("platform") for part in parts]),
        "cores": min(part.environment.get("cores") or 0 for part in parts) or None,
        "cpu": one_processor([part.environment.get("cpu") for part in parts]),
        "gpu": one_processor([part.environment.get("gpu") for part in parts]),
        "versions": versions,
        "flags": common[0] if all(flags == common[0] for flags in common) else [],
    }  # fmt: skip
    shards = [
        {
            "name": part.name,
            "started": part.header.get("started"),
            "seconds": part.header.get("seconds"),
            "records": len(part.records),
            "flags": _without(part.flags),
        }
        for part in parts
    ]
    header = {
        "started": min(str(part.header.get("started")) for part in parts),
        "environment": environment,
        "shards": shards,
    }
    return {**header, "unfinished": list(unfinished)} if unfinished else header


def _both(values: Iterable[str | None]) -> str | None:
    """The value, if all parts have the same; else the different values in one text."""
    return " and ".join(sorted({value for value in values if value is not None})) or None


def one_processor(of_parts: Sequence[object]) -> object:
    """The processor, if all parts have the same; else all, ``mixed``, so that no latencies are compared."""
    known = [cpu for index, cpu in enumerate(of_parts) if cpu is not None and cpu not in of_parts[:index]]
    if len(known) < 2:
        return known[0] if known else None
    names = sorted({str(cpu.get("name") if isinstance(cpu, Mapping) else cpu) for cpu in known})
    sets = [set(cpu.get("instructions") or []) if isinstance(cpu, Mapping) else set() for cpu in known]
    return {"name": " and ".join(names), "instructions": sorted(set.intersection(*sets)), "mixed": True}


def _values_of(option: str, flags: Sequence[str]) -> list[str]:
    apart = [value for flag, value in itertools.pairwise(flags) if flag == option]
    return [*apart, *(flag.partition("=")[2] for flag in flags if flag.startswith(f"{option}="))]


def _without(flags: Sequence[str]) -> list[str]:
    """The arguments without those that belong to one job."""
    kept, drop = [], False
    for flag in flags:
        if drop:
            drop = False
        elif flag in _OF_ONE_JOB:
            drop = True
        elif flag.partition("=")[0] not in _OF_ONE_JOB:
            kept.append(flag)
    return kept
