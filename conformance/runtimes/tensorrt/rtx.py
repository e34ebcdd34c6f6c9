"""TensorRT for RTX on a host with or without a GPU: whether its parser takes a model and its builder builds it.

Nothing is run: an engine of TensorRT for RTX is only made for the GPUs that it names. NVIDIA documents such builds on
hosts that have a CPU alone (TensorRT for RTX, "CPU-only ahead-of-time compilation"). Its parser is that of TensorRT,
and it lacks some plugins and kernels that TensorRT has.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.util
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from conformance.process.disk.value_store import KeptValues
from conformance.process.errors import Stopped, Unavailable, attempt, did_you_mean, or_else, summarize
from conformance.runtimes.tensorrt.build import (
    BuildFailed,
    ShapeInput,
    UnsupportedModel,
    add_profile,
    configure,
    make_log,
    parse,
)
from conformance.runtimes.tensorrt.build_options import Build
from conformance.runtimes.tensorrt.refusals import Refusal, of_builder

MODULE = "tensorrt_rtx"
IN_TENSORRT = ("DeformConv", "NonMaxSuppression", "NonZero", "ScatterElements")
"""Operators that TensorRT for RTX 1.7 lacks, as a whole or with some attributes, and TensorRT has, by its own
documentation (onnx-tensorrt, ``docs/operators.md``; release notes of TensorRT 10.1 for DeformConv; the plugin
ScatterElements, which adds, of TensorRT 10.1 to 11)."""
USUAL = "sm80"
"""The target that is built for where nobody says another."""


def absence() -> str | None:
    """Say in one line why this host has no TensorRT for RTX, or return None. A GPU is not needed."""
    if importlib.util.find_spec(MODULE) is None:
        return "tensorrt-rtx is not installed (pip install 'onnx-export-conformance[tensorrt-rtx]')"
    found = attempt(lambda: importlib.import_module(MODULE))
    return f"tensorrt-rtx cannot be imported: {summarize(found)}" if isinstance(found, Exception) else None


def version() -> str:
    """Return the version of TensorRT for RTX that is imported. Raises ImportError where there is none."""
    return str(importlib.import_module(MODULE).__version__)


@contextlib.contextmanager
def as_known(trt: ModuleType) -> Iterator[None]:
    """Raise Unavailable where TensorRT for RTX lacks a name that is called here, or takes other arguments, as a
    version may that nobody has tried with this package: no model is at fault for that."""
    try:
        yield
    except (AttributeError, TypeError) as error:
        owner = getattr(error, "obj", None)
        lacks = getattr(owner, "__name__", type(owner).__module__).startswith(MODULE)
        if lacks or "incompatible function arguments" in str(error):  # the words of pybind11
            text = f"tensorrt-rtx {getattr(trt, '__version__', '')} is not as 1.7.1, which is known here"
            raise Unavailable(f"{text}: {summarize(error)}") from error
        raise


@dataclass(frozen=True)
class RtxTrial:
    """Hold the outcome of a model that TensorRT for RTX was given."""

    version: str
    error: str | None = None
    """``UnsupportedModel``, ``ShapeInput``, ``BadProfile`` or ``BuildFailed``; None where it was taken."""
    said: str = ""
    """What was said where it was not about a node."""
    refusals: tuple[Refusal, ...] = ()

    @property
    def reason(self) -> str:
        """Say in one line what was refused."""
        return "; ".join(dict.fromkeys(map(str, self.refusals))) or self.said

    @property
    def lacks(self) -> bool:
        """Return whether TensorRT for RTX only lacks operators of the model."""
        return bool(self.refusals) and all(refusal.lacks for refusal in self.refusals)

    @property
    def untried(self) -> list[str]:
        """List operators whose plugins cannot be made without a GPU, where that or a lack is all that was refused."""
        open_ = all(refusal.lacks or refusal.untried for refusal in self.refusals)
        return list(dict.fromkeys(one.operator for one in self.refusals if one.untried)) if open_ else []


@dataclass(frozen=True)
class Job:
    """Ask TensorRT for RTX to parse a model, or to build an engine of it, which is thrown away."""

    build: Build | None = None
    """The shapes and options of the engine; None asks for parsing alone."""
    target: str = ""
    """The GPU that the engine is for, such as ``sm80``."""


def known_targets() -> list[str]:
    """The targets that the installed TensorRT for RTX builds for, such as ``sm80``: compute capability 8.0."""
    names = importlib.import_module(MODULE).ComputeCapability.__members__
    return [name.lower() for name in names if name.startswith("SM")]


def tried(model: Path, sha: str, job: Job, kept: KeptValues) -> RtxTrial:
    """Return what becomes of a model, from the store or by trying it now. ``sha`` is a hash of the model and its
    weights. Raises Unavailable where there is no TensorRT for RTX, and Stopped for a target that it does not know."""
    missing = absence()
    if missing is not None:
        raise Unavailable(missing)
    trt = importlib.import_module(MODULE)
    if job.build is not None and job.target not in known_targets():
        near = did_you_mean(job.target, known_targets())
        text = f"TensorRT for RTX {trt.__version__} builds for no {job.target}{near}"
        raise Stopped("declare", "UnknownTarget", text, "case")
    built = None if job.build is None else {**job.build.as_dict(), "target": job.target}
    told = [sha, built, version(), _recipe()]
    key = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:32]
    trial = or_else(None, lambda: _read(kept.get(key)))  # what another version kept is tried again
    if trial is None:
        trial = _try(trt, model, job)
        kept.put(key, asdict(trial))
    return trial


@functools.cache
def _recipe() -> str:
    """A hash of the code that tries: other code may see another outcome in the same model."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _read(told: Mapping[str, Any]) -> RtxTrial:
    refusals = tuple(Refusal(**{**one, "inside": tuple(one["inside"])}) for one in told["refusals"])
    return RtxTrial(**{**told, "refusals": refusals})


def _try(trt: ModuleType, model: Path, job: Job) -> RtxTrial:
    try:
        with as_known(trt):
            log = make_log(trt)
            log.forget()
            builder = trt.Builder(log)
            network = parse(trt, log, builder, model)
            if job.build is not None:
                _build(trt, log, builder, network, job)
    except UnsupportedModel as error:
        return RtxTrial(version(), type(error).__name__, str(error), tuple(error.refusals))
    except ShapeInput as error:
        return RtxTrial(version(), type(error).__name__, str(error))
    except BuildFailed as error:
        return RtxTrial(version(), type(error).__name__, str(error), (of_builder(str(error), model),))
    return RtxTrial(version())


def _build(trt: ModuleType, log: Any, builder: Any, network: Any, job: Job) -> None:
    build, target = job.build, job.target
    assert build is not None
    config = builder.create_builder_config()
    configure(trt, config, build.options)
    config.set_flag(trt.BuilderFlag.DISABLE_TIMING_CACHE)  # nothing is timed without a GPU
    config.num_compute_capabilities = 1
    config.set_compute_capability(getattr(trt.ComputeCapability, target.upper()), 0)
    add_profile(log, builder, config, network, build)
    if builder.build_serialized_network(network, config) is None:
        raise BuildFailed(log.errors())
