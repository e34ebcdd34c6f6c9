"""Which samples are cases as they are, which need a few lines of Python, and which are none: found out by trying."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch

from conformance.case.samples.calls import Said, Unsaid, Untaken, call_of
from conformance.case.samples.tried import MEMORY
from conformance.process.worker.isolation import Death, Worker
from evidence.reach import held
from evidence.reach.proof import Direct, Unproved, prove
from evidence.reach.samples import Database, Sample, names, samples

EACH = 16
"""Samples of an operator or a class, drawn evenly from all that it has: max_pool2d has 1,440, most have fewer."""
SECONDS = 120.0
"""That the samples of one operator may take."""
AROUND = "PyTorch's tests call it through a function of their own"
RANDOM = "draws random numbers"
ENDS = "PyTorch ends the process"
LATER = frozenset(("module", "clones", "unused", "list", "tuple", "dict", "constant"))
"""What a case file had no words for before any module and any signature could be declared: modules of packages, and
what forward takes beside tensors, changes and leaves alone."""
Verdict = Literal["as is", "wrapper", "refused", "not at all"]


@dataclass(frozen=True)
class Outcome:
    """What became of a sample."""

    name: str
    verdict: Verdict
    kind: str = ""
    """Why it is not a case as it is."""
    text: str = ""
    """What was said of it."""
    words: frozenset[str] = frozenset()
    """Of a case as it is: the words of ``LATER`` that it has."""


def study(
    worker: Worker, database: Database, every: int = 1, each: int = EACH
) -> Iterator[tuple[list[Outcome], int]]:
    """For each operator or class, of which every so-manieth: what became of its samples, and how many it has."""
    for name in names(database)[::every]:
        answer = worker.call(tried, database, name, each, None, False, timeout=SECONDS)
        yield _one_by_one(worker, database, name, each) if isinstance(answer, Death) else answer


def _one_by_one(worker: Worker, database: Database, name: str, each: int) -> tuple[list[Outcome], int]:
    """The same where a sample ends the process: each in a process that may end, and once more with its own values."""
    found: list[Outcome] = []
    count = 0
    for number in range(each):
        for own in (False, True):
            answer = worker.call(tried, database, name, each, number, own, timeout=SECONDS)
            if not isinstance(answer, Death):
                break
        if isinstance(answer, Death):
            found.append(Outcome(name, "not at all", ENDS, answer.how))
        else:
            found += answer[0]
            count = answer[1]
    return found, max(count, len(found))


def tried(
    progress: object, database: Database, name: str, each: int, only: int | None, own: bool
) -> tuple[list[Outcome], int]:
    """In a worker: what becomes of the samples, and how many there are in all. ``only`` one of them; with ``own``
    none is given inputs that a case draws, which may crash."""
    warnings.simplefilter("ignore")
    try:
        found, count = samples(database, name, each)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"[:200]
        return [Outcome(name, "not at all", "PyTorch makes no sample", text)], 1
    with TemporaryDirectory() as folder:
        (Path(folder) / "beside.py").write_text(held.PYTHON, encoding="utf-8")
        kept = found if only is None else found[only : only + 1]
        return [outcome_of(Path(folder), name, sample, own) for sample in kept], count


# ---- one sample ------------------------------------------------------------------------------------------------


def outcome_of(folder: Path, name: str, sample: Sample, own: bool = False) -> Outcome:
    """What becomes of a sample. ``own``: its own values are tried, and no others."""
    held.hold(sample.tensors, sample.direct)
    if (wrong := _raises(sample)) is not None:
        return Outcome(name, "not at all", "PyTorch itself raises on the sample", wrong)
    if name in MEMORY:
        return Outcome(name, "not at all", "its outputs are memory as it was found")
    try:
        said, _ = sample.said()
        if own:
            raise Unproved("crash", "PyTorch ends the process on other values")
        said = _as_it_is(folder, said, sample.direct)
    except Untaken as error:
        return Outcome(name, "refused", str(error))
    except Unsaid as error:
        return _with_python(folder, name, sample, str(error))
    except Unproved as why:
        return _told(name, why) or _with_more(folder, name, sample, said, why)
    return Outcome(name, "as is", words=frozenset(_words(said)))


def _words(said: object) -> Iterator[str]:
    """Those of ``LATER`` in a declaration."""
    if isinstance(said, dict):
        yield from LATER & said.keys()
        for value in said.values():
            yield from ("constant",) if value is None else _words(value)
    if isinstance(said, list):
        for value in said:
            yield from _words(value)


def _raises(sample: Sample) -> str | None:
    """What PyTorch raises on the sample as it is, such as one for a GPU alone."""
    try:
        with torch.no_grad():
            sample.direct(copy.deepcopy([tensor.detach() for tensor in sample.tensors]))  # views stay views
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def _as_it_is(folder: Path, said: Said, direct: Direct) -> Said:
    """What has to be said. Raises Unproved."""
    if not said["inputs"]:
        said, call = {**said, "inputs": {"x": "float32[1]"}, "unused": ["x"]}, direct

        def direct(_: Sequence[torch.Tensor]) -> Any:
            return call([])

    try:
        prove(folder, said, direct)
    except Unproved as why:
        if why.kind != "ChangesInput":
            raise
        said = {**said, "clones": True}
        prove(folder, said, direct)
    return said


def _told(name: str, why: Unproved) -> Outcome | None:
    """What no Python beside the case changes."""
    if why.kind == "random":
        return Outcome(name, "not at all", RANDOM)
    if why.kind != "NoTensor":
        return None
    if "complex" in str(why):
        return Outcome(name, "refused", "complex outputs")
    if "NumPy cannot hold" in str(why):
        return Outcome(name, "refused", "outputs that NumPy cannot hold", str(why))
    return Outcome(name, "not at all", "returns no tensor", str(why))


def _with_more(folder: Path, name: str, sample: Sample, said: Said, why: Unproved) -> Outcome:
    """A sample whose case needs more than what is read off its call."""
    if sample.by_name or why.kind in ("another answer", "direct call"):
        return _with_python(folder, name, sample, AROUND if sample.by_name else why.kind)
    more = {**said, "draw": "beside.draw", "clones": True}
    found = _proved(folder, name, more, sample.direct, "values that depend on each other", why)
    return (
        found if found.verdict != "not at all" else _with_python(folder, name, sample, "memory around a tensor", why)
    )


def _with_python(folder: Path, name: str, sample: Sample, kind: str, before: Unproved | None = None) -> Outcome:
    """The same with a function around the call, of the sample's own values."""
    tensors = sample.tensors
    try:
        said, _ = call_of("beside.forward", tensors, {})
    except Untaken as error:
        return Outcome(name, "refused", str(error))
    said |= {"draw": "beside.draw", "clones": True} if tensors else {"inputs": {"x": "float32[1]"}, "unused": ["x"]}
    return _proved(folder, name, said, sample.direct if tensors else lambda _: sample.direct([]), kind, before)


def _proved(folder: Path, name: str, said: Said, direct: Direct, kind: str, before: Unproved | None) -> Outcome:
    text = f"{before.kind}: {before}" if before is not None else ""
    try:
        prove(folder, said, direct)
    except Unproved as why:
        return _told(name, why) or Outcome(name, "not at all", f"{kind}, and {why.kind}", f"{text}; {why}")
    return Outcome(name, "wrapper", kind, text)
