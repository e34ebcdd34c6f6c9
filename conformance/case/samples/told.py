"""Ask a process for the samples of PyTorch's own tests, and keep what it told."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, TypeAlias

from conformance.process.disk import DEFAULT_STORE
from conformance.process.disk.stores import make, write_whole
from conformance.process.errors import or_else, require_torch

SECONDS = 900.0
"""In which all samples of all operators are read and tried; those of PyTorch 2.15 take one to two minutes."""
REASONS, NAMES = 5, 3
"""How many reasons are shown for which samples are no cases, and operators of each."""


@dataclass(frozen=True)
class OfOperator:
    """A sample as a case says it."""

    operator: str
    """As in PyTorch's tests: ``nn.functional.pad.reflect``."""
    number: int
    """Among the operator's samples, from 0."""
    said: dict[str, Any]
    """``forward``, ``inputs``, and what else the call needs said."""

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class LeftOut:
    """A sample that is no case, or all samples of an operator, with the reason."""

    operator: str
    number: int
    why: str

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


Told: TypeAlias = OfOperator | LeftOut


@dataclass(frozen=True)
class ToldOfOperators:
    """Hold what was told of the samples that were asked for."""

    operators: list[str]
    """The names of all operators that there are."""
    told: list[Told]


_told: list[LeftOut] = []


def notes() -> Iterator[str]:
    """Say which of the samples that this process asked for are no cases, and why not."""
    by_reason = defaultdict[str, list[str]](list)
    for one in _told:
        by_reason[one.why].append(one.operator)
    reasons = sorted(by_reason.items(), key=lambda item: -len(item[1]))
    said = [f"{_in_brief(list(dict.fromkeys(names)))} ({why})" for why, names in reasons[:REASONS]]
    others = sum(len(names) for _, names in reasons[REASONS:])
    if said:
        more = f"; {others} for other reasons" if others else ""
        yield f"PyTorch's samples of these operators are no cases: {'; '.join(said)}{more}"


def _in_brief(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= NAMES else f"{', '.join(names[:NAMES])} and {len(names) - NAMES} more"


@functools.cache
def ask(only: tuple[str, ...], but: tuple[str, ...], each: int, grow: tuple[str, ...]) -> ToldOfOperators:
    """Return at most ``each`` samples of the operators whose names match ``only`` and not ``but``.

    They are those of the installed PyTorch, kept in the default store for its version and this code. Raises UserError
    without PyTorch, and ValueError where its samples cannot be read.
    """
    require_torch("samples of PyTorch's tests need")
    kept = Path(DEFAULT_STORE) / "samples" / f"{_key(only, but, each, grow)}.json"
    text = or_else(None, functools.partial(kept.read_text, encoding="utf-8"))
    answer = None if text is None else or_else(None, functools.partial(_read, text))
    if answer is None:
        text = _tried(json.dumps([only, but, each, grow]))
        answer = _read(text)
        or_else(None, functools.partial(_keep, kept, text))
    _told.extend(one for one in answer.told if isinstance(one, LeftOut))
    return answer


def _tried(asked: str) -> str:
    """Return what a process that reads and tries samples writes. Raises ValueError where it cannot."""
    command = [sys.executable, "-m", "conformance.case.samples.tried", asked]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise ValueError(f"PyTorch's samples were not read within {SECONDS:g} s; ask for fewer by only") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
        raise ValueError(f"the samples of PyTorch {metadata.version('torch')} cannot be read: {last}")
    return done.stdout


def _keep(file: Path, text: str) -> None:
    if not Path(DEFAULT_STORE).is_dir():  # one of an earlier version is left for the run to tell of
        make(Path(DEFAULT_STORE))
    write_whole(file, text.encode())


def _key(*asked: object) -> str:
    digest = hashlib.blake2b(f"{metadata.version('torch')} {asked}".encode(), digest_size=16)
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _read(text: str) -> ToldOfOperators:
    given = json.loads(text)
    return ToldOfOperators(
        [str(name) for name in given["operators"]],
        [OfOperator(**one) if "said" in one else LeftOut(**one) for one in given["told"]],
    )
