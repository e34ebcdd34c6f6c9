"""Convert networks, plant defects in some of the files, and check each beside its original, as a user would.

The answers are kept by what the two files hold, so that a study that was broken off goes on.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import random
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from benchmarks.common import ROOT, process_ended
from conformance.extras.versions import environments
from conformance.front import cli
from conformance.judge.spoiled_weights import ConvertedFile, spoiled
from conformance.judge.verify_converted import meaning_of
from conformance.models.precision.by_others import precision_of
from conformance.models.reference.carried_types import carry
from conformance.process.errors import UserError
from conformance.process.worker import warm
from evidence.converted.convert import CONVERTERS, data
from evidence.converted.plan import BESIDE, PACKAGES, PLAN, REAL, SMALL
from evidence.converted.plants import PLANTS, File, Plant

KEPT = ROOT / ".conformance" / "converted"
NETWORKS = "evidence.converted.networks"
SCRIPT = Path(__file__).with_name("convert.py")
RUNTIMES = "onnxruntime,openvino"

Result = Literal["right", "a setting named", "saturates", "loses too much", "not verified", "real",
                 "ends a runtime's process", "accused"]  # fmt: skip
RESULTS: tuple[Result, ...] = get_args(Result)
WORST: Sequence[Result] = ("accused", "ends a runtime's process", "loses too much", "saturates", "a setting named")
CAUSES: Mapping[str | None, Result] = {"setting": "a setting named", "saturation": "saturates"}
"""Results by the cause that a red was shown to have, which tells the user what to do."""


@dataclass(frozen=True)
class Sound:
    """A file as its converter has made it, and what was said of it beside its original."""

    converter: str
    network: str
    result: Result
    decibels: float | None
    said: Sequence[str]
    """The reds, each with whom it blames."""

    @property
    def stem(self) -> str:
        return f"{self.converter}-{self.network}"


@dataclass(frozen=True)
class Asked:
    """A planted defect, and whether it was found and named."""

    plant: Plant
    found: bool
    named: bool
    said: str
    """The first sentence about it."""


@dataclass(frozen=True)
class Study:
    files: Sequence[Sound]
    asked: Sequence[Asked]
    refused: Sequence[str]
    """Say which converters did not take which networks."""
    compared: Mapping[str, Sequence[str]]
    """The words of the comparison with the original alone (``spoiled``), which takes no time, by sound file."""
    left: int
    """The number of files that were not asked about before Ctrl-C."""
    invalid: Sequence[str]
    """Files that ONNX's own checker refuses, which are not sound."""
    versions: Sequence[str]
    """The packages of the converters."""
    whole: bool


def _python(environment: str) -> str:
    """Return the Python of an environment, made where it is not there. Raises UserError."""
    if environment == "here":
        return sys.executable
    folder = KEPT / "environments" / environment
    python = folder / "bin" / "python"
    if not python.exists():
        made = environments.venv(folder)
        if environment in BESIDE:
            (site,) = folder.glob("lib/*/site-packages")
            (site / "beside.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
        try:
            environments.install(made, PACKAGES[environment], f"converters ({environment})")
        except BaseException:
            shutil.rmtree(folder)  # a half of it would be taken for the whole
            raise
    return str(python)


def _converted(folder: Path, plan: Mapping[str, Mapping[str, Sequence[str]]]) -> Iterator[tuple[str, str, str]]:
    """Make the files of a plan in a folder; yield the converter, the network, and why it was not taken."""
    for environment, converters in plan.items():
        asked = [f"{converter}:{network}" for converter, given in converters.items() for network in given]
        try:
            python = _python(environment)
        except UserError as error:
            yield from ((*one.split(":"), str(error)) for one in asked)  # type: ignore[misc]
            continue
        command = [python, "-W", "ignore", str(SCRIPT), str(folder), *asked]
        clean = environments.clean_environment()  # some write beside their files into the folder they run in
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=clean)
        lines = re.findall(r'\{"name".*\}$', done.stdout, re.M)  # behind bars of progress
        if len(lines) < len(asked):
            ended = f"the converters ended after {len(lines)} of {len(asked)} files"
            raise RuntimeError(f"{environment}: {ended}: {done.stderr}")
        for line in lines:
            told = json.loads(line)
            converter, network = told["name"].split(":")
            yield converter, network, told["problem"]


class _OneWorker:
    """Stands for ``new_file_worker``: one process for all files, in place of one for each command."""

    def __init__(self) -> None:
        self._new, self._stack = warm.new_file_worker, contextlib.ExitStack()
        self._worker: Any = None

    def __enter__(self) -> None:
        warm.new_file_worker = lambda memory_gib=None: self._borrowed()  # type: ignore[assignment, misc]

    @contextlib.contextmanager
    def _borrowed(self) -> Iterator[Any]:
        if self._worker is None:
            self._worker = self._stack.enter_context(self._new())
        yield self._worker

    def __exit__(self, *_: object) -> None:
        warm.new_file_worker = self._new
        self._stack.close()


def check(original: Path, second: Path) -> dict[str, Any]:
    """Return what ``conformance check ORIGINAL SECOND`` reports of a file (``models`` of its JSON), with what it
    prints."""
    digest = hashlib.sha256(original.read_bytes() + second.read_bytes()).hexdigest()[:24]
    kept = KEPT / "answers" / f"{digest}.json"
    if not kept.is_file():
        kept.parent.mkdir(parents=True, exist_ok=True)
        report, out = KEPT / "report.json", io.StringIO()
        command = ["check", str(original), str(second), "--runtime", RUNTIMES, "--store", str(KEPT / "store"),
                   "--output", f"json={report}"]  # fmt: skip
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            code = cli.main(command)
        (model,) = json.loads(report.read_text(encoding="utf-8"))["models"]
        kept.write_text(json.dumps({"code": code, "out": out.getvalue(), **model}), encoding="utf-8")
    answer: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
    return answer


def result_of(model: Mapping[str, Any]) -> Result:
    """Return what a report says of a sound file. What is reported and counts for nothing, such as a conversion that
    nobody asked for, is no red."""
    reds = [one for one in model["records"] if one["status"] == "failed" and one["id"] not in model["uncounted"]]
    causes = {_cause(one) for one in reds}
    return next((name for name in WORST if name in causes), "right" if model["verified"] else "not verified")


def _cause(record: Mapping[str, Any]) -> Result:
    if _loses(record):
        return "loses too much"
    if process_ended(record["reason"]):
        return "ends a runtime's process"
    return CAUSES.get((record["cause"] or {}).get("name"), "accused")


def _loses(record: Mapping[str, Any]) -> bool:
    return bool(record["check"] == "fidelity" and record["error"] == "LowFidelity")


def _sound(converter: str, network: str, model: Mapping[str, Any]) -> Sound:
    result, decibels, said = result_of(model), None, []
    if result == "accused" and f"{converter}-{network}" in REAL:
        result = "real"
    for record in model["records"]:
        if record["check"] == "fidelity" and record["fidelity"]:
            decibels = record["fidelity"].get("sqnr")
        if record["status"] == "failed" and record["id"] not in model["uncounted"]:
            said.append(f"{record['check']}: {record['error']}, blames {record['fault'] or 'nobody'}: "
                        f"{record['reason']}")  # fmt: skip
    return Sound(converter, network, result, decibels, said)


def _asked(plant: Plant, model: Mapping[str, Any]) -> Asked:
    """A defect is found where the command does not end in 0, and named where it prints the place and the kind."""
    out = " ".join(str(model["out"]).split())
    told = out.partition(" is wrong")[2] or out.partition("loses too much")[2]
    place = any(word in told for word in plant.place)
    kind = any(word in told for word in plant.kind)
    found = model["code"] != 0
    reds = [one["reason"] for one in model["records"] if one["status"] == "failed"]
    return Asked(plant, found, found and place and kind, str(next(iter(reds), "")).partition("\n")[0])


@cache
def study(quick: bool) -> Study:
    """Make the files and check them; ``quick``: three, by converters that are here, and the plants in these."""
    import onnx

    plan = SMALL if quick else PLAN
    folder, planted = KEPT / "files", KEPT / "planted"
    for each in (folder, planted):
        shutil.rmtree(each, ignore_errors=True)
        each.mkdir(parents=True)
    subprocess.run([sys.executable, "-W", "ignore", "-m", NETWORKS, str(folder)], cwd=ROOT, check=True)
    made = [*_converted(folder, plan)]
    refused = [f"{converter} of {network}: {problem}" for converter, network, problem in made if problem]
    why = {(*each,): _refusal(folder / f"{'-'.join(each)}.onnx") for *each, problem in made if not problem}
    invalid = [f"{'-'.join(each)}: {text}" for each, text in why.items() if text is not None]
    sound = [each for each, text in why.items() if text is None]
    random.Random(0).shuffle(sound)  # so that a part of them is of all kinds
    pairs = {f"{converter}-{network}": network for converter, network in sound}
    compared = {stem: _compared(folder / f"{like}.onnx", folder / f"{stem}.onnx") for stem, like in pairs.items()}
    files: list[Sound] = []
    asked: list[Asked] = []
    with _OneWorker(), contextlib.suppress(KeyboardInterrupt):
        for number, plant in enumerate(PLANTS):
            converter, network = plant.file.split(":")
            if (converter, network) not in why:
                continue
            original = folder / f"{network}.onnx"
            spoilt = File(onnx.load(folder / f"{converter}-{network}.onnx"), onnx.load(original))
            plant.spoil(spoilt)
            path = planted / f"second{number:02}.onnx"
            onnx.save(spoilt.model, path)
            asked.append(_asked(plant, check(original, path)))
        for converter, network in sound:
            answer = check(folder / f"{network}.onnx", folder / f"{converter}-{network}.onnx")
            files.append(_sound(converter, network, answer))
    files.sort(key=lambda one: [*CONVERTERS].index(one.converter))
    return Study(
        files, asked, refused, compared, len(sound) - len(files), invalid, [*_versions(plan)], whole=not quick
    )


def _compared(original: Path, second: Path) -> list[str]:
    import onnx

    first, other = onnx.load(original), carry(onnx.load(second), halves=True)
    meaning = meaning_of(precision_of(other) or "fp32")
    return spoiled(ConvertedFile(first, other, data(original)[:6], meaning, []))


def _refusal(path: Path) -> str | None:
    import onnx

    try:
        onnx.checker.check_model(path)
    except onnx.checker.ValidationError as error:
        return str(error).strip().partition("\n")[0]
    return None


def _versions(plan: Mapping[str, object]) -> Iterator[str]:
    for environment in plan:
        if environment != "here" and not (KEPT / "environments" / environment).exists():
            continue  # it could not be installed, which the page says
        names = [package.partition("[")[0] for package in PACKAGES[environment] or ("onnxruntime",)]
        ask = "import importlib.metadata as m, sys; print(*(f'{n} {m.version(n)}' for n in sys.argv[1:]), sep=', ')"
        done = subprocess.run([_python(environment), "-c", ask, *names], capture_output=True, text=True, check=True)
        yield done.stdout.strip()
