"""The command of NVIDIA's own tools that builds the engine of a cell again: ``trtexec``, ``tensorrt_rtx``.

Options of trtexec: NVIDIA TensorRT documentation, "Command-Line Programs", and ``trtexec --help`` of 8.6, 10 and 11;
of tensorrt_rtx: TensorRT for RTX documentation, "Best Practices" and "CPU-Only AOT and TensorRT-RTX Engines".
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from conformance.process.errors import display_path
from conformance.runtimes.onnxgraph.mapped import read_graph
from conformance.runtimes.onnxgraph.reads import dims_of
from conformance.runtimes.tensorrt.build import precisions_of, strongly_typed
from conformance.runtimes.tensorrt.build_options import Build
from conformance.runtimes.tensorrt.rtx import Job

if TYPE_CHECKING:
    from onnx import GraphProto, ValueInfoProto

_PLAIN = re.compile(r"[\w./-]+")
"""Names of inputs that trtexec takes as they are; it takes others between single quotes."""


def trtexec(model: Path, build: Build, graph: GraphProto, typed: Sequence[str]) -> str:
    """Return the command, for a shell, by which ``trtexec`` builds what ``make_engine`` does, and runs nothing.

    ``graph`` is the ONNX graph of the model, ``typed`` the options for its dtypes (``typing_options``).
    """
    options = build.options
    compatible = options.hardware_compatibility == "ampere_plus"
    return shlex.join([
        "trtexec", *_of_model(model), *_of_shapes(build, graph), *typed, *_of_builder(build),
        *(["--hardwareCompatibilityLevel=ampere+"] if compatible else []),
        *(f"--staticPlugins={display_path(Path(library))}" for library in options.plugins), "--skipInference",
    ])  # fmt: skip


def tensorrt_rtx(model: Path, build: Build, graph: GraphProto, target: str) -> str:
    """Return the command, for a shell, by which ``tensorrt_rtx`` builds an engine for a target such as ``sm80``. Its
    networks are always strongly typed. NVIDIA documents no options of this tool for workspace, effort and TF32."""
    number = target.removeprefix("sm")
    return shlex.join([
        "tensorrt_rtx", *_of_model(model), *_of_shapes(build, graph), f"--computeCapabilities={number}",
        "--skipInference",
    ])  # fmt: skip


def rtx_commands(model: Path, jobs: Sequence[Job]) -> list[str]:
    """Return the commands that do the jobs which build an engine, for a record's ``compiled``."""
    builds = [(job.build, job.target) for job in jobs if job.build is not None]
    if not builds:
        return []
    graph = read_graph(model).graph
    return [tensorrt_rtx(model, build, graph, target) for build, target in builds]


def typing_options(trt: ModuleType, graph: GraphProto) -> list[str]:
    """Return the options that let ``trtexec`` of this TensorRT compute in the dtypes of the model.

    Before TensorRT 10 each precision is allowed by itself. TensorRT 11 takes its option and knows no other networks.
    """
    if not strongly_typed(trt):
        return [f"--{name.lower()}" for name in precisions_of(graph)]
    return ["--stronglyTyped"] if "STRONGLY_TYPED" in trt.NetworkDefinitionCreationFlag.__members__ else []


def _of_model(model: Path) -> Iterator[str]:
    yield f"--onnx={display_path(model)}"
    yield "--saveEngine=model.engine"


def _of_shapes(build: Build, graph: GraphProto) -> Iterator[str]:
    """Yield the ranges of inputs that have sizes which the model leaves open: trtexec refuses those of others."""
    names = [value.name for value in graph.input if value.name in build.shapes and _is_dynamic(value)]
    for place, option in enumerate(("min", "opt", "max")):
        shapes = ",".join(f"{_quoted(name)}:{'x'.join(map(str, build.shapes[name][place]))}" for name in names)
        if shapes:
            yield f"--{option}Shapes={shapes}"


def _is_dynamic(value: ValueInfoProto) -> bool:
    return any(not isinstance(size, int) for size in dims_of(value.type.tensor_type) or ())


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else f"'{name}'"


def _of_builder(build: Build) -> Iterator[str]:
    options = build.options
    if options.workspace is not None:
        yield f"--memPoolSize=workspace:{options.workspace}"  # MiB
    if options.optimization_level is not None:
        yield f"--builderOptimizationLevel={options.optimization_level}"
    if not options.tf32:
        yield "--noTF32"
