"""Planting defects one after another, and running the tests that meet them until one fails."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from benchmarks.common import ROOT
from conformance.process.disk.locks import exclusive
from evidence.defects import observer, reach
from evidence.defects.copies import Copy, copy_of, digest_of
from evidence.defects.listed import PACKAGE, Defect, DoesNotApply, read
from evidence.defects.reach import Function, Reach
from evidence.defects.warm import Warm

HOME = ROOT / ".conformance" / "defects"
"""Folders by the hash of package and tests: what was measured, and the results so far."""
LAST = Path(__file__).with_name("found.json")
"""The test that found each defect last time, by its id."""
MOST = 300.0
"""Seconds of tests, as measured, that are run for one defect."""
FIRST, MORE = 4, 4
"""The files of the first run of pytest for a defect, and how many times as many each further run has."""
START, FACTOR = 60.0, 4.0
"""The time limit of a run of pytest: for its start, and times what its tests took when they were measured."""
Status = Literal["found", "survived", "cut short", "not met", "does not apply"]
"""``cut short``: not found within ``MOST``; ``not met``: no test executes it."""


@dataclass(frozen=True)
class Outcome:
    """What became of a defect."""

    id: str
    status: Status
    by: str = ""
    """The id of the test that found it."""
    tier: str = ""
    how: str = ""
    """``call``, ``setup``, ``teardown`` or ``collect`` of that test failed; ``timeout``; or ``ends`` where the
    process of the tests ended."""
    seconds: float = 0.0
    """How long that test took."""
    tried: int = 0
    """How many test functions were run."""
    met_by: int = 0
    """How many test functions execute it."""


@dataclass(frozen=True)
class Options:
    """What is planted, and what tries it."""

    tree: Path = ROOT
    """A repository whose package gets the defects, and whose tests are run."""
    only: Collection[str] = ()
    jobs: int = 1
    most: float = MOST
    measured: Path | None = None
    """A folder of ``reach.measure``, also of another state of the package; None measures what is not measured yet."""
    again: bool = False
    """Whether what survived or was cut short is tried again."""


def run(options: Options) -> Iterator[Outcome]:
    """What becomes of each defect, as it comes. Results are kept, so that a run that was broken off goes on.

    A test that found something is run without a defect at the end; where it fails then too, its defects come again.
    """
    home = HOME / digest_of(options.tree)
    measured = home / "reach" if options.measured is None else options.measured
    if options.measured is None:
        reach.measure(options.tree, measured, options.jobs)
    kept, sound = Results(home / "results.jsonl"), Sound(home / "sound.jsonl")
    defects = read(options.only)
    with ExitStack() as stack:
        copies = [stack.enter_context(copy_of(options.tree)) for _ in range(options.jobs)]
        runners = [Runner(copy, stack.enter_context(Warm(copy.python, copy.root)), sound) for copy in copies]
        last = json.loads(LAST.read_text(encoding="utf-8")) if LAST.is_file() else {}
        pool = _Pool(runners, Reach(measured), last, options.most)
        final = {"found", "does not apply"} | (set() if options.again else {"survived", "not met"})
        told: set[str] = set()
        while True:
            known = {one.id: one for one in kept.read().values() if one.status in final and sound.may_pass(one.by)}
            yield from (known[one.id] for one in defects if one.id in known and one.id not in told)
            told |= known.keys()
            due = [defect for defect in defects if defect.id not in known and defect.id not in told]
            for outcome in pool.outcomes(due):
                kept.add(outcome)
                told.add(outcome.id)
                yield outcome
            used = {one.by for one in kept.read().values() if one.by and one.id in told}
            told -= {one.id for one in kept.read().values() if one.by in runners[0].failing_sound(used)}
            if all(defect.id in told for defect in defects):
                return


class _Pool:
    """Tries several defects at a time, one in each copy."""

    def __init__(self, runners: Sequence[Runner], measured: Reach, last: Mapping[str, Any], most: float) -> None:
        self._free: queue.SimpleQueue[Runner] = queue.SimpleQueue()
        for runner in runners:
            self._free.put(runner)
        self._count, self._measured, self._last, self._most = len(runners), measured, last, most

    def outcomes(self, defects: Sequence[Defect]) -> Iterator[Outcome]:
        with ThreadPoolExecutor(self._count) as pool:
            yield from pool.map(self._outcome, defects)

    def _outcome(self, defect: Defect) -> Outcome:
        runner = self._free.get()
        try:
            return runner.try_out(defect, self._measured, self._last.get(defect.id, {}).get("by", ""), self._most)
        finally:
            self._free.put(runner)


def remember(outcomes: Sequence[Outcome]) -> None:
    """Writes which test found each defect into the committed file."""
    known: dict[str, Any] = json.loads(LAST.read_text(encoding="utf-8")) if LAST.is_file() else {}
    known |= {one.id: {"by": one.by, "tier": one.tier, "seconds": one.seconds} for one in outcomes if one.by}
    ids = {defect.id for defect in read()}
    text = json.dumps({id: known[id] for id in sorted(known) if id in ids}, indent=1)
    LAST.write_text(text + "\n", encoding="utf-8")


class Results:
    """Outcomes in a file, a line each as they come; of several about one defect the last counts."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self) -> dict[str, Outcome]:
        lines = self._file.read_text(encoding="utf-8").splitlines() if self._file.is_file() else []
        outcomes = [Outcome(**json.loads(line)) for line in lines]
        return {outcome.id: outcome for outcome in outcomes}

    def add(self, outcome: Outcome) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with exclusive(self._file.with_suffix(".lock")), self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(outcome)) + "\n")


class Sound:
    """Which tests pass without a defect; each is asked once."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def known(self, test: str) -> bool | None:
        """Whether a test passes; None where it was not asked."""
        lines = self._file.read_text(encoding="utf-8").splitlines() if self._file.is_file() else []
        return dict(json.loads(line) for line in lines).get(test)

    def may_pass(self, test: str) -> bool:
        """Whether a test is not known to fail."""
        return self.known(test) is not False

    def note(self, test: str, passes: bool) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with exclusive(self._file.with_suffix(".lock")), self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps([test, passes]) + "\n")


@dataclass(frozen=True)
class Ended:
    """How a run of pytest ended."""

    failed: str = ""
    """The test that failed, or that was running when the time was over; empty where all passed."""
    tier: str = ""
    how: str = ""
    seconds: float = 0.0
    passed: tuple[str, ...] = ()


class Runner:
    """Plants defects in one copy, and runs tests there."""

    def __init__(self, copy: Copy, warm: Warm, sound: Sound) -> None:
        self._copy, self._warm, self._sound = copy, warm, sound

    def try_out(self, defect: Defect, measured: Reach, last: str, most: float) -> Outcome:
        """What becomes of the defect: the test that found it last first, then all that meet it."""
        try:
            defect.applied((self._copy.root / defect.path).read_text(encoding="utf-8"))
        except (DoesNotApply, OSError):
            return Outcome(defect.id, "does not apply")
        met: Sequence[Function] = ()
        with contextlib.suppress(DoesNotApply, OSError):  # the package was another one when that was measured
            met = measured.tests_of(defect)
        there = [one for one in met if one.name.split("::")[-1] in self._names_in(one.file)]
        chosen, cut = _within(there, most)
        if last.partition("::")[2].partition("[")[0].split("::")[-1] in self._names_in(last.partition("::")[0]):
            outcome = self._tried(defect, [last], 30.0)
            if outcome is not None:
                return outcome
        for part in _parts(chosen):
            outcome = self._tried(defect, [one.id for one in part], sum(one.seconds for one in part))
            if outcome is not None:
                break
        else:
            whole = most >= MOST  # less is for a quick look, in which the slow tests are not asked
            files = list(dict.fromkeys(one.file for one in there if whole and self._is_thorough(one.file)))
            outcome = self._tried(defect, files, most, tier="thorough") if files else None
        status: Status = "cut short" if cut else "survived" if there else "not met"
        outcome = outcome or Outcome(defect.id, status)
        return replace(outcome, tried=len(chosen), met_by=len(there))

    def _names_in(self, file: str) -> set[str]:
        """The names of the functions in a test file as it is now."""
        place = self._copy.root / file
        text = place.read_text(encoding="utf-8") if file and place.is_file() else ""
        return {line.split("def ")[1].split("(")[0] for line in text.splitlines() if line.lstrip().startswith("def ")}

    def _is_thorough(self, file: str) -> bool:
        """Return whether a test file has tests of the tier ``thorough``."""
        return "mark.thorough" in (self._copy.root / file).read_text(encoding="utf-8")

    def _tried(self, defect: Defect, tests: Sequence[str], seconds: float, tier: str = "") -> Outcome | None:
        """The outcome where one of the tests, or of those of a ``tier`` among them, finds the defect."""
        left = list(tests)
        while left:
            with self._copy.planted(defect):
                ended = self._pytest(left, seconds, tier)
            if not ended.failed:
                return None
            if self._counts(ended, left, seconds, tier):
                return Outcome(defect.id, "found", ended.failed, ended.tier, ended.how, ended.seconds)
            done = {_function(test) for test in (*ended.passed, ended.failed)}
            rest = [test for test in left if _function(test) not in done and test.partition("::")[0] not in done]
            if len(rest) == len(left):  # pytest ends so at all of them, without the defect too
                return None
            left = rest
        return None

    def _counts(self, ended: Ended, tests: Sequence[str], seconds: float, tier: str) -> bool:
        """Whether it is the defect that ended a run so: a failed test is asked later; where the process ended or its
        time was over, the same is run without the defect at once."""
        if ended.how not in ("timeout", "ends") and "::" in ended.failed:
            return self._sound.may_pass(ended.failed)
        wanted = [ended.failed] if "::" in ended.failed else list(tests)
        return not self._pytest(wanted, seconds, tier).failed

    def failing_sound(self, tests: Collection[str]) -> set[str]:
        """Those of the tests that fail without a defect."""
        left = sorted(test for test in tests if self._sound.known(test) is None and "::" in test)
        while left:
            ended = self._pytest(left, 60.0 * len(left))
            for test in ended.passed:
                self._sound.note(test, True)
            if ended.failed:
                self._sound.note(ended.failed, False)
            asked = {*ended.passed, ended.failed}
            rest = [test for test in left if test not in asked]
            if not ended.failed or len(rest) == len(left):
                break
            left = rest
        return {test for test in tests if not self._sound.may_pass(test)}

    def _pytest(self, tests: Sequence[str], seconds: float, tier: str = "") -> Ended:
        """Runs tests in the copy until one fails: those that are named, or those of a ``tier`` in the files named."""
        self._copy.tidy()
        with tempfile.TemporaryDirectory(prefix="defects-") as name:
            folder = Path(name)
            shutil.copyfile(observer.__file__, folder / "defects_observer.py")
            (folder / "tests").write_text("\n".join(tests) + "\n", encoding="utf-8")
            observed = folder / "observed"
            observed.touch()
            environment = {
                **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
                "PYTHONPATH": os.pathsep.join([str(self._copy.root), str(folder)]),
                observer.FILE: str(observed),
            }
            words = ["-x", "-q", "-p", "no:cacheprovider", "-p", "defects_observer"]
            words += [f"--basetemp={folder / 'basetemp'}", f"@{folder / 'tests'}", *(["-m", tier] if tier else [])]
            limit = START + FACTOR * seconds
            code = self._warm.pytest(words, self._copy.root, environment, folder / "said", limit)
            lines = [json.loads(line) for line in observed.read_text(encoding="utf-8").splitlines()]
            return _read(lines, code)


def _read(lines: Sequence[Mapping[str, Any]], code: int | None) -> Ended:
    """What the observer has written of a run with this exit code."""
    passed = tuple(line["ended"] for line in lines if "ended" in line)
    for line in lines:
        if "failed" in line:
            return Ended(line["failed"], line["tier"], line["when"], line["seconds"], passed)
    begun = [line for line in lines if "begun" in line and line["begun"] not in passed]
    if code is None:
        return Ended(begun[-1]["begun"], begun[-1]["tier"], "timeout", 0.0, passed) if begun else Ended("pytest")
    if code in (0, 5):
        return Ended(passed=passed)
    where = begun[-1] if begun else {"begun": "pytest", "tier": "default"}
    return Ended(where["begun"], where["tier"], "ends", 0.0, passed)


def _parts(functions: Sequence[Function]) -> Iterator[list[Function]]:
    """Yield the functions by files, more files each time: the first find most defects."""
    files: dict[str, list[Function]] = {}
    for function in functions:
        files.setdefault(function.file, []).append(function)
    left, count = list(files.values()), FIRST
    while left:
        yield [function for own in left[:count] for function in own]
        left, count = left[count:], MORE * count


def _function(test: str) -> str:
    return test.partition("[")[0]


def _within(functions: Sequence[Function], most: float) -> tuple[list[Function], bool]:
    """As many functions as take ``most`` seconds together, and whether others are left out."""
    chosen: list[Function] = []
    spent = 0.0
    for function in functions:
        if chosen and spent + function.seconds > most:
            continue
        chosen.append(function)
        spent += function.seconds
    return chosen, len(chosen) < len(functions)


__all__ = ["PACKAGE", "Options", "Outcome", "remember", "run"]
