"""Run files: what every report and gate is computed from."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import shlex
import socket
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.process.disk.foreign_files import parse_json, read_text, uncollected
from conformance.process.disk.locks import lock
from conformance.process.disk.whole_files import replacing
from conformance.process.errors import UserError, display_path, why
from conformance.results.records.record import Record
from conformance.results.records.record_types import Header
from conformance.results.records.validation import Check, Misfit, check_of, checks_of, object_of, plain, wrong

SCHEMA = 1

LINES, WHOLE, CHANGES = "records.jsonl", "run.json", "changes.json"
"""A line for each record as it comes; all records, at the end; and what changed since a baseline."""
PAGE, JUNIT = "report.html", "junit.xml"
"""The files that ``conformance ci`` makes of a run, beside it."""


class RunWriter:
    """Writes ``records.jsonl`` line by line, each flushed, so that a killed run keeps what it had.

    The file is locked for as long as it is open; another run that wants the same folder is refused, before it touches
    what lies there. The lock ends with the process, and leaves nothing behind.
    """

    def __init__(self, folder: Path, header: dict[str, object]) -> None:
        """Raise UserError where another run writes there, or nothing can be written."""
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = _opened(folder / LINES)
        except OSError as error:
            raise UserError(f"{display_path(folder)}: cannot be written ({why(error)})") from None
        self._replaced: dict[str, tuple[int, int]] = {}
        """By cell id, the start and the length of the line that takes the place of the cell's first one."""
        self._waiting = b""
        """What could not be written yet."""
        self._size = 0
        try:
            self.locked = _claim(self._file, folder)
            for name in (WHOLE, CHANGES, PAGE, JUNIT):  # of the run before
                (folder / name).unlink(missing_ok=True)
            self._file.truncate(0)
            self.add({"schema": SCHEMA, **header, "process": _process()})
        except OSError as error:
            self._file.close()
            raise UserError(f"{display_path(folder)}: cannot be written ({why(error)})") from None
        except BaseException:  # also Ctrl-C: nobody else closes the file
            self._file.close()
            raise

    def replace(self, record: dict[str, Any]) -> None:
        """Write a cell again that was written before, in its place. Raises OSError as ``add`` does."""
        start = self._size + len(self._waiting)
        try:
            self.add(record)
        finally:
            self._replaced[record["id"]] = start, self._size + len(self._waiting) - start

    def add(self, record: dict[str, object]) -> None:
        """Raise OSError where the record cannot be written. The next call then tries it again, and what is in the
        file stays whole."""
        self._waiting += json.dumps(record, separators=(",", ":")).encode("ascii") + b"\n"
        self._flush()

    def _flush(self) -> None:
        written = 0
        try:
            while written < len(self._waiting):
                written += self._file.write(self._waiting[written:])
        except OSError:
            with contextlib.suppress(OSError):  # half a line is not left behind
                self._file.truncate(self._size)
                self._file.seek(self._size)
            raise
        self._size, self._waiting = self._size + written, b""

    def close(self, seconds: float | None, spent: Mapping[str, float] | None = None) -> None:
        """Make ``run.json`` from the lines; ``seconds`` is what the whole run took, None if it was broken off, and
        ``spent`` what of it is in no cell's.

        Raises OSError where it cannot be written, or lines of ``add`` still cannot; no part of it is left then.
        """
        try:
            self._flush()
            if seconds is None and not self._replaced:
                return
            if not os.path.samestat(os.fstat(self._file.fileno()), (self._folder / LINES).stat()):
                raise OSError(f"{LINES} was replaced while the run wrote it")
            if self._replaced:
                self._put_in_place()
            if seconds is None:
                return
            with replacing(self._folder / WHOLE) as whole:
                whole.writelines(part.encode("ascii") for part in self._whole(seconds, spent))
        finally:
            self._file.close()

    def _whole(self, seconds: float, spent: Mapping[str, float] | None) -> Iterator[str]:
        self._file.seek(0)
        with io.BufferedReader(self._file) as lines:
            header = {**json.loads(lines.readline()), "seconds": round(seconds, 3)}
            if spent is not None:
                header["spent"] = {name: round(value, 3) for name, value in spent.items()}
            yield from with_records(header, map(json.loads, lines))

    def _put_in_place(self) -> None:
        """Put each line that was written again where the cell's first one is."""
        replaced = {start for start, _ in self._replaced.values()}
        with replacing(self._folder / LINES) as ordered:
            self._file.seek(0)
            start = 0
            for line in io.BufferedReader(io.FileIO(self._file.fileno(), closefd=False)):
                if start not in replaced:
                    place = self._replaced.get(json.loads(line).get("id"))
                    ordered.write(line if place is None else os.pread(self._file.fileno(), place[1], place[0]))
                start += len(line)
        self._file.close()
        self._file = io.FileIO(self._folder / LINES, "r+")


def with_records(header: Mapping[str, object], records: Iterable[object]) -> Iterator[str]:
    """The text of ``{**header, "records": [*records]}`` as indented JSON, record by record: all of it at once would
    be the most that a run has in memory."""
    start, _, end = json.dumps({**header, "records": []}, indent=1).rpartition("[]")
    yield f"{start}["
    between = ""
    for record in records:
        # No other line breaks than those of the indentation: JSON escapes them in text.
        text = json.dumps(record, indent=1).replace("\n", "\n  ")
        yield f"{between}\n  {text}"
        between = ","
    yield ("\n ]" if between else "]") + f"{end}\n"


def _opened(file: Path) -> io.FileIO:
    """The file for reading and writing, with what is in it. OSError for what is no regular file."""
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
    opened = io.FileIO(handle, "r+")
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        opened.close()
        raise OSError(f"{file.name} is not a regular file")
    return opened


def _claim(file: io.FileIO, folder: Path) -> bool:
    """Lock the lines of a run; whether the file system knows locks. Raises UserError where another run has them."""
    locked = lock(file.fileno())
    if locked is False:
        raise UserError(
            f"{display_path(folder)}: {_writer(folder)} writes its run there; give another folder, or wait"
        )
    return bool(locked)


def _writer(folder: Path) -> str:
    """The process that writes a run, as far as the run's header says."""
    try:
        header, _ = read_lines(folder / LINES)
    except UserError:
        return "another process"
    process = header.get("process")
    if process is None:
        return "another process"
    where = "" if process["host"] == socket.gethostname() else f" on {process['host']}"
    return f"process {process['pid']}{where}, started {header.get('started')} ({process['command']}),"


def _process() -> dict[str, object]:
    """Return who writes a run, for whoever finds its folder in use."""
    program = Path(sys.argv[0] if sys.argv else "")
    name = program.parent.name if program.name == "__main__.py" else program.name
    return {"pid": os.getpid(), "host": socket.gethostname(), "command": shlex.join([name, *sys.argv[1:]])}


# ---- reading -------------------------------------------------------------------------------------------------


def read_run(place: Path) -> tuple[Header, list[Record]]:
    """Header and records of a run: its folder, its ``run.json`` or its ``records.jsonl``.

    A folder's ``records.jsonl`` is taken where the run was killed before ``run.json`` was made. Records of earlier
    versions get the fields that they lack. Raises UserError where there is no run, a run of another schema, or one
    that is damaged or has a cell twice.
    """
    file = place
    if place.is_dir():
        file = next((place / name for name in (WHOLE, LINES) if (place / name).is_file()), place)
    if not file.is_file():
        raise UserError(f"{place}: there is no run ({WHOLE} or {LINES})")
    with uncollected():
        header, records = read_lines(file) if file.suffix != ".json" else _read_whole(file)
    by_id: dict[str, Record] = {}
    for record in records:
        before = by_id.get(record.id)
        if before is not None and not before.unexplained:  # else the line takes its place, with an explanation
            raise UserError(f"{display_path(file)}: has {record.id} twice; make that run again, or merge its parts")
        by_id[record.id] = record
    return header, [*by_id.values()]


def _read_whole(file: Path) -> tuple[Header, list[Record]]:
    name = display_path(file)
    try:
        run = parse_json(read_text(file))
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"{name}: is not a run of schema {SCHEMA} ({error})") from None
    if not isinstance(run, dict) or run.get("schema") != SCHEMA or not isinstance(run.get("records"), list):
        raise UserError(f"{name}: is not a run of schema {SCHEMA}")
    records = run.pop("records")
    header = _header(run, name)
    for number, item in enumerate(records):  # in place, so that not all of them are in memory twice
        records[number] = _record(item, f"{name}: record {number + 1}")
    return header, records


def read_lines(file: Path) -> tuple[Header, list[Record]]:
    """Header and records of a ``records.jsonl``; a last line that was cut off is left out.

    Raises UserError where the file is not a run of this schema, or any other line is damaged.
    """
    name = display_path(file)
    lines = _complete_lines(name, read_text(file).split("\n"))
    _, header = next(lines, (0, None))
    if not isinstance(header, dict) or header.get("schema") != SCHEMA or "records" in header:
        raise UserError(f"{name}: is not a run of schema {SCHEMA}, one line for each record")
    return _header(header, f"{name}:1"), [_record(value, f"{name}:{number}:") for number, value in lines]


def _complete_lines(name: str, lines: Sequence[str]) -> Iterator[tuple[int, object]]:
    """The values of the lines with their numbers, without what was cut off behind the last line break."""
    for number, line in enumerate(lines, 1):
        last = number == len(lines)
        if last and not line:
            return
        try:
            value = parse_json(line)
        except ValueError as error:
            if last or number == 1:  # the first is no header, which the caller says
                return
            raise UserError(f"{name}:{number}: is damaged: {error}") from None
        yield number, value


def _header(value: Any, where: str) -> Header:
    try:
        check_of(Header)(value)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    header: Header = value
    return header


def _record(value: object, where: str) -> Record:
    try:
        return validated(value)
    except UserError as error:
        raise UserError(f"{where} {error}; make the run again") from None


# ---- one record of a run file ---------------------------------------------------------------------------------

_NEEDED = ("id", "case", "exporter", "opset", "check", "status")
"""What the records of every version have."""


def _no_baseline(value: object) -> None:
    if value:
        raise Misfit("is a field of baselines, which no run has")


@functools.cache
def _check() -> Check:
    checks = {**checks_of(Record), "details": check_of(list[str]), "accepted": _no_baseline}
    return object_of(lambda name: checks.get(name, plain))


def validated(value: object) -> Record:
    """Return the record of a run file. Raises UserError with what is wrong where it is none, or with what it lacks
    that the records of every version have."""
    if type(value) is not dict:
        raise wrong(value, "a record")
    _check()({name: item for name, item in value.items() if item is not None})
    lacking = [name for name in _NEEDED if value.get(name) is None]
    if lacking:
        raise UserError(f"lacks {', '.join(lacking)}")
    return Record.from_dict(value)
