"""Networks that converters have made smaller: each file by itself, and beside its original.

The files are sound, as each is what a converter makes by its usual call. A red is an accusation, but for two kinds
that are told and count apart: a documented setting of a runtime that trades accuracy, which is named, and a file that
loses more than is allowed of what its original computes, with its decibels.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from benchmarks.common import ROOT, Row
from conformance.extras.versions import environments
from evidence.counts import enough, none

KEPT = ROOT / ".conformance" / "accusations" / "converted"
NETWORKS = "evidence.accusations.converted.networks"
SCRIPT = Path(__file__).with_name("convert.py")
RUNTIMES = "onnxruntime,openvino"
LEAST = 40
"""Files that a whole run has to have."""

Result = Literal["right", "a setting named", "loses too much", "not verified", "accused"]
RESULTS: tuple[Result, ...] = get_args(Result)
WAYS = ("alone", "beside")

PACKAGES: Mapping[str, Sequence[str]] = {
    "here": (),
    "others": ("onnxconverter-common", "nncf", "onnx", "onnxruntime", "numpy"),
    "torch": ("nvidia-modelopt[onnx]", "amd-quark"),
}
"""The environments by name, and what is installed in one of its own; ``here`` is this one."""

PLAN: Mapping[str, Mapping[str, Sequence[str]]] = {
    "here": {
        "static-qdq": ("cnn", "residual", "lstm", "mlp"),
        "static-s8": ("depthwise", "decoder", "gru"),
        "static-qoperator": ("cnn", "mlp", "residual"),
        "dynamic": ("mlp", "attention", "lstm", "embedded"),
        "dynamic-channel": ("gru", "gated", "cnn"),
        "int4": ("attention-21", "gated-21"),
        "int4-level4": ("gated-21", "embedded-21"),
        "int4-qdq": ("embedded-21", "gated-21"),
        "int2": ("attention-21", "gated-21"),
        "int8-weights": ("attention-21", "embedded-21"),
        "ort-fp16": ("attention", "cnn"),
    },
    "others": {
        "common-fp16": ("mlp", "cnn", "attention"),
        "common-fp16-io32": ("depthwise", "attention", "embedded"),
        "nncf": ("cnn", "residual", "attention", "lstm"),
        "nncf-int8-weights": ("attention-21", "gated-21"),
        "nncf-int4-weights": ("attention-21", "gated-21"),
    },
    "torch": {
        "autocast-fp16": ("mlp", "residual", "gated"),
        "autocast-bf16": ("mlp", "attention", "gated"),
        "modelopt-int8": ("cnn", "attention", "depthwise", "embedded"),
        "modelopt-int4": ("attention", "gated"),
        "quark-a8w8": ("cnn", "attention"),
        "quark-xint8": ("mlp", "attention"),
    },
}
"""By environment the converters of ``convert.py``, and the networks that each is given."""


@dataclass
class File:
    """A converted file, and what was said of it."""

    converter: str
    network: str
    path: Path
    results: dict[str, Result] = field(default_factory=dict)
    """By ``alone`` and ``beside``, its original."""
    decibels: float | None = None
    said: list[str] = field(default_factory=list)
    """The reds, each with whom it blames."""


@dataclass(frozen=True)
class Study:
    files: Sequence[File]
    refused: Sequence[str]
    """Say which converters did not take which networks."""
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
        try:
            environments.install(made, PACKAGES[environment], f"converters ({environment})")
        except BaseException:
            shutil.rmtree(folder)  # a half of it would be taken for the whole
            raise
    return str(python)


def _converted(folder: Path, plan: Mapping[str, Mapping[str, Sequence[str]]]) -> Iterator[tuple[str, str, str]]:
    """Make the files of a plan below a folder; yield the converter, the network, and why it was not taken."""
    for environment, converters in plan.items():
        asked = [f"{converter}:{network}" for converter, given in converters.items() for network in given]
        command = [_python(environment), "-W", "ignore", str(SCRIPT), str(folder), *asked]
        clean = (
            environments.clean_environment()
        )  # some converters write beside their files into the folder they run in
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=clean)
        told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"name"')]
        if len(told) < len(asked):
            ended = f"the converters ended after {len(told)} of {len(asked)} files"
            raise RuntimeError(f"{environment}: {ended}: {done.stderr}")
        for each in told:
            converter, network = each["name"].split(":")
            yield converter, network, each["problem"]


def _check(*files: Path, report: Path) -> list[dict[str, Any]]:
    """Return what ``conformance check`` says of files, by model."""
    command = [sys.executable, "-m", "conformance", "check", *map(str, files), "--runtime", RUNTIMES, "--store",
               str(KEPT / "store"), "--output", f"json={report}"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=dict(os.environ))
    if done.returncode not in (0, 1, 2, 5):
        raise RuntimeError(done.stderr or done.stdout)
    models: list[dict[str, Any]] = json.loads(report.read_text(encoding="utf-8"))["models"]
    return models


def result_of(model: Mapping[str, Any]) -> Result:
    """Return what a report says of a model. What is reported and counts for nothing, such as a conversion that nobody
    asked for, is no red."""
    reds = [one for one in model["records"] if one["status"] == "failed" and one["id"] not in model["uncounted"]]
    if any(not (_names_a_setting(one) or _loses(one)) for one in reds):
        return "accused"
    if reds:
        return "loses too much" if any(map(_loses, reds)) else "a setting named"
    return "right" if model["verified"] else "not verified"


def _names_a_setting(record: Mapping[str, Any]) -> bool:
    return (record["cause"] or {}).get("name") == "setting"


def _loses(record: Mapping[str, Any]) -> bool:
    return bool(record["check"] == "fidelity" and record["error"] == "LowFidelity")


def _note(file: File, way: str, model: Mapping[str, Any]) -> None:
    file.results[way] = result_of(model)
    for record in model["records"]:
        if record["check"] == "fidelity" and record["fidelity"]:
            file.decibels = record["fidelity"].get("sqnr")
        if record["status"] == "failed":
            file.said.append(f"{way}, {record['check']}: {record['error']}, blames {record['fault'] or 'nobody'}: "
                             f"{record['reason']}")  # fmt: skip


@cache
def study(quick: bool) -> Study:
    """Make the files and check them; ``quick``: three, by converters that are here."""
    plan = {"here": {"static-qdq": ("mlp",), "int4": ("gated-21",), "dynamic": ("lstm",)}} if quick else PLAN
    folder = KEPT / "files"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    subprocess.run([sys.executable, "-W", "ignore", "-m", NETWORKS, str(folder)], cwd=ROOT, check=True)
    files, refused = [], []
    for converter, network, problem in _converted(folder, plan):
        path = folder / f"{converter}-{network}.onnx"
        if problem:
            refused.append(f"{converter} of {network}: {problem}")
        else:
            files.append(File(converter, network, path))
    report = KEPT / "report.json"
    alone = {Path(model["file"]): model for model in _check(*(one.path for one in files), report=report)}
    for one in files:
        _note(one, "alone", alone[one.path])
        (model,) = _check(folder / f"{one.network}.onnx", one.path, report=report)
        _note(one, "beside", model)
    return Study(files, refused, [*_versions(plan)], whole=not quick)


def _versions(plan: Mapping[str, object]) -> Iterator[str]:
    for environment in plan:
        names = [package.partition("[")[0] for package in PACKAGES[environment] or ("onnxruntime",)]
        ask = "import importlib.metadata as m, sys; print(*(f'{n} {m.version(n)}' for n in sys.argv[1:]), sep=', ')"
        done = subprocess.run([_python(environment), "-c", ask, *names], capture_output=True, text=True, check=True)
        yield done.stdout.strip()


def rows(seen: Study) -> Iterator[Row]:
    def of(way: str, result: Result) -> list[File]:
        return [one for one in seen.files if one.results[way] == result]

    what = "files of converters"
    if seen.whole:
        yield enough(what, len(seen.files), LEAST)
    else:
        yield Row(what, str(len(seen.files)))
    yield none("accused alone", len(of("alone", "accused")), _names(of("alone", "accused")), of=len(seen.files))
    yield none("accused beside the original", len(of("beside", "accused")), _names(of("beside", "accused")),
               of=len(seen.files))  # fmt: skip
    for way in WAYS:
        for result in RESULTS:
            if result != "accused" and (found := of(way, result)):
                yield Row(f"{way}: {result}", str(len(found)), "" if result == "right" else _names(found))


def _names(files: Sequence[File]) -> str:
    return ", ".join(one.path.stem for one in files)
