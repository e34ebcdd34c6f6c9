"""Every runtime, in one table: what case files, options, the matrix and verdicts know of runtimes comes from it.

Reading the table imports no runtime: each entry names the function that opens it. Other packages add theirs by the
entry point ``conformance.runtimes``; ``docs/runtimes.md`` shows how.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple

from conformance.process.errors import attempt, did_you_mean, summarize
from conformance.runtimes import plugin_providers

GROUP = "conformance.runtimes"
"""The group of entry points by which other packages add runtimes."""
INTERFACE = 1
"""The version of what a runtime of another package is to be: an entry of the table, and what it ``opens``."""


class RuntimeEntry(NamedTuple):
    """Describe a runtime."""

    name: str
    """Its name in case files, options, ids and records."""
    title: str
    """Its name in sentences, as the subject of "agrees with PyTorch"."""
    opens: str = ""
    """``module:function`` of the context manager that gets the path of a model and the paths of its custom-operator
    libraries, and yields a ``Session``; of one that only builds, it computes what the parser made of a model."""
    takes: tuple[str, ...] = ()
    """What else ``opens`` takes, by keyword: ``config`` (ONNX Runtime's session options), ``build`` (what TensorRT
    builds an engine with)."""
    brief: str = ""
    """Its name in a block about a finding; ``title`` where this is empty."""
    short: str = ""
    """Its name in the heads of the matrix; ``name`` where this is empty."""
    kernels: str = ""
    """The runtime that it is a form of, without its optimizer but with its kernels; empty for kernels of its own."""
    imports: str = ""
    """``module:function`` that imports what ``opens`` would, where that takes long: each question is asked in a fork,
    which has what the process that asks has imported."""
    second_opinion: bool = False
    """Whether it is run where another runtime fails, to tell whether the model itself is right."""
    values_only: bool = False
    """Whether its second opinion counts for values alone: that it runs a model does not show the model to be valid,
    that it refuses one says nothing, and its dtypes are its own."""
    no_witness: str = ""
    """``module:function`` that gets the path of a model and the arrays of an example, and says in a few words why
    what this runtime computes there shows nothing, or None; empty where that is never so."""
    witness_environment: tuple[tuple[str, str], ...] = ()
    """Environment variables under which it is asked as a witness."""
    in_cases: bool = True
    """Whether cases and options may name it; if not, it is only asked about failures of others."""
    converted: bool = True
    """Whether it runs models that were converted to fp16 or int8."""
    inside: str = ""
    """A module whose ``values`` gives the tensors inside of a model without making them outputs, which would change
    what the runtime makes of it, and whose ``absence`` says why this host has none; empty where outputs do."""
    shown_inside: str = ""
    """What has to be said of these tensors, where the runtime's optimizer or fusions decide on them."""
    wide: tuple[tuple[str, str], ...] = ()
    """The option with which its 8-bit kernels cannot saturate, which add up products in 16 bits on processors without
    VNNI; empty where nothing is known of such kernels."""
    wide_form: str = ""
    """The runtime that is a form of it with that option; empty where ``opens`` takes the option."""
    scripted: bool = False
    """True if a script that runs a small model in it alone is written for whoever mends it
    (``diagnose.smallest.model_script``)."""
    only_builds: bool = False
    """True if it only parses a model and builds an engine of it, and runs none. It checks the models of every case
    that names TensorRT."""
    on_device: bool = False
    """Whether it computes in the memory of a device, and its session has a ``stopwatch`` that runs there."""
    absent: str = ""
    """``module:function`` that says in one line why this host cannot run it, or None; empty where every host can. It
    is given the ``provider``, if there is one."""
    provider: str = ""
    """The execution provider of ONNX Runtime that this runtime is."""
    signs: bool = False
    """True if zeros have their signs where IEEE 754 gives them one. OpenVINO adds a zero to whatever it multiplies by
    a constant, which nothing that it promises forbids."""
    packages: tuple[str, ...] = ()
    """Packages any of which brings it. A run's header has the version, under the first name, and ``--reuse`` takes no
    verdict over from another version."""
    interface: int = 0
    """Of a runtime of another package the ``INTERFACE`` that it was written for."""

    @property
    def computes_with(self) -> str:
        return self.kernels or self.name

    @property
    def witness(self) -> bool:
        """Return whether it is asked about every file where a host has it, and is the first to be left out."""
        return self.only_builds or (self.second_opinion and bool(self.absent))

    @property
    def builds(self) -> bool:
        """Return whether it builds an engine for a range of shapes, at length.

        A case runs it at fewer opsets, and the check ``engine`` tries the engine in place of ``specials``.
        """
        return "build" in self.takes


PROVIDERS = {
    "cuda": ("CUDAExecutionProvider", "CUDA", "onnxruntime-gpu"),
    "tensorrt": ("TensorrtExecutionProvider", "TensorRT", "onnxruntime-gpu"),
    "tensorrt-rtx": ("NvTensorRTRTXExecutionProvider", "TensorRT for RTX", "onnxruntime-ep-nv-tensorrt-rtx"),
    "openvino": ("OpenVINOExecutionProvider", "OpenVINO", "onnxruntime-ep-openvino"),
    "webgpu": ("WebGpuExecutionProvider", "WebGPU", "onnxruntime-ep-webgpu"),
    "qnn": ("QNNExecutionProvider", "QNN", "onnxruntime-qnn"),
    "migraphx": ("MIGraphXExecutionProvider", "MIGraphX", "onnxruntime-migraphx"),
    "directml": ("DmlExecutionProvider", "DirectML", "onnxruntime-windowsml"),
    "coreml": ("CoreMLExecutionProvider", "Core ML", "onnxruntime"),
    "xnnpack": ("XnnpackExecutionProvider", "XNNPACK", "onnxruntime"),
}
"""Execution providers of ONNX Runtime by the word after ``onnxruntime-`` in a runtime's name: what ONNX Runtime calls
them, what sentences do, and a package that has them."""


def _provider_of(module: str) -> str:
    return str(importlib.import_module(module).get_ep_name())


def _plugged_in() -> Iterator[tuple[str, str | tuple[str, str, str]]]:
    """Yield the providers of packages that ``PROVIDERS`` does not name, as it has them, and in place of one that does
    not say its name a sentence."""
    listed = {package.replace("-", "_") for _, _, package in PROVIDERS.values()}
    for module in plugin_providers.modules():
        word = module.removeprefix("onnxruntime_").removeprefix("ep_").replace("_", "-")
        if module not in listed:
            name: str | Exception = attempt(partial(_provider_of, module))
            package = module.replace("_", "-")
            if isinstance(name, Exception):
                yield word, f"the provider of {package} is left out: {module} raises {summarize(name)}"
            elif name not in {provider for provider, _, _ in PROVIDERS.values()}:
                yield word, (name, name.removesuffix("ExecutionProvider"), package)


_PLUGGED_IN = dict(_plugged_in())
PROVIDERS |= {word: said for word, said in _PLUGGED_IN.items() if isinstance(said, tuple)}

_EARLIER = tuple(f"onnxruntime-{word}" for word in ("openvino", "directml"))
"""Packages that had providers until March 2026."""
_OF_ONNXRUNTIME = ("onnxruntime", *dict.fromkeys(package for _, _, package in PROVIDERS.values()), *_EARLIER)

RTX = "tensorrt-rtx"
EVALUATOR = "onnx-reference"
LITERAL = "onnxruntime-literal"
"""The runtime that computes what a model means: node by node, without an optimizer."""

_OWN = (
    RuntimeEntry(
        name=LITERAL,
        title="ONNX Runtime node by node, its optimizer off",
        opens="conformance.runtimes.onnxruntime:open_literal",
        kernels="onnxruntime",
        in_cases=False,
    ),
    RuntimeEntry(
        name="onnxruntime-unoptimized",
        title="onnxruntime with its optimizer off",
        brief="ONNX Runtime without its optimizer",
        opens="conformance.runtimes.onnxruntime:open_unoptimized",
        takes=("config",),
        kernels="onnxruntime",
        second_opinion=True,
        in_cases=False,
    ),
    RuntimeEntry(
        name=EVALUATOR,
        title="the ONNX specification's evaluator",
        brief="ONNX's evaluator",
        opens="conformance.runtimes.onnxreference:open_model",
        short="ref",
        second_opinion=True,
        no_witness="conformance.runtimes.onnxreference:no_witness",
        converted=False,  # it computes fp16 in NumPy, slowly and by other roundings
        signs=True,
        packages=("onnx",),
    ),
    RuntimeEntry(
        name="onnxruntime",
        title="ONNX Runtime",
        opens="conformance.runtimes.onnxruntime:open_optimized",
        shown_inside="whose optimizer merges fewer nodes than it would were the tensors inside not shown",
        takes=("config",),
        short="ort",
        wide=(("session.x64quantprecision", "1"),),
        signs=True,
        scripted=True,
        packages=tuple(dict.fromkeys(_OF_ONNXRUNTIME)),
    ),
    RuntimeEntry(
        name="openvino",
        title="OpenVINO",
        opens="conformance.runtimes.openvino:open_model",
        imports="conformance.runtimes.openvino:imported",
        short="ov",
        second_opinion=True,
        values_only=True,
        wide=(("LP_TRANSFORMS_MODE", "NO"),),
        wide_form="openvino-float32",
        scripted=True,
        no_witness="conformance.runtimes.openvino:no_witness",
        # Virtual machines may announce AMX and refuse it, which OpenVINO does not survive.
        witness_environment=(("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_VNNI"),),
        absent="conformance.runtimes.openvino:absence",
        packages=("openvino",),
    ),
    RuntimeEntry(
        name="openvino-float32",
        title="OpenVINO without kernels of 8 bits",
        opens="conformance.runtimes.openvino:open_in_float32",
        imports="conformance.runtimes.openvino:imported",
        kernels="openvino",
        in_cases=False,
        witness_environment=(("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_VNNI"),),
        absent="conformance.runtimes.openvino:absence",
    ),
    RuntimeEntry(
        name="tensorrt",
        title="TensorRT",
        opens="conformance.runtimes.tensorrt:open_model",
        takes=("build",),
        short="trt",
        inside="conformance.runtimes.tensorrt.engine_tensors",
        shown_inside="of whose engine only the tensors are shown that no fusion removes",
        on_device=True,
        absent="conformance.runtimes.tensorrt:absence",
        packages=("tensorrt", "tensorrt-cu13", "tensorrt-cu12", "tensorrt-cu11"),
    ),
    RuntimeEntry(
        name=RTX,
        title="TensorRT for RTX",
        opens="conformance.runtimes.tensorrt.network.network_session:open_network",
        short="rtx",
        only_builds=True,
        converted=False,
        absent="conformance.runtimes.tensorrt.rtx:absence",
        packages=("tensorrt-rtx", "tensorrt-rtx-cu13", "tensorrt-rtx-cu12"),
    ),
    *(
        RuntimeEntry(
            name=f"onnxruntime-{word}",
            title=f"ONNX Runtime with {title}",
            opens="conformance.runtimes.onnxruntime:open_with_provider",
            takes=("config", "provider"),
            short=f"ort-{word}",
            absent="conformance.runtimes.providers:absence",
            provider=provider,
            packages=tuple(dict.fromkeys(_OF_ONNXRUNTIME)),
        )
        for word, (provider, title, _) in PROVIDERS.items()
    ),
)


def added(points: Iterable[EntryPoint]) -> Iterator[tuple[str, RuntimeEntry | str]]:
    """Yield the runtimes of other packages by the names of their entry points, and in place of one that cannot be
    taken a sentence that says why.

    An entry point names a dictionary, of the fields of ``RuntimeEntry``, in a module that imports nothing of this
    package: it is read while this table is made.
    """
    names = {runtime.name for runtime in _OWN}
    for point in sorted(points, key=lambda point: (str(point.dist and point.dist.name), point.name)):
        said = attempt(point.load)
        why = f"{point.value} raises {summarize(said)}" if isinstance(said, Exception) else misfit(said, names)
        if why is None and isinstance(said, dict):
            entry = RuntimeEntry(**said)
            names.add(entry.name)
            yield point.name, entry
        else:
            package = f" of the package {point.dist.name}" if point.dist is not None else ""
            yield point.name, f"the runtime {point.name}{package} is left out: {why}"


def misfit(said: object, names: set[str]) -> str | None:
    """Return why an object describes no new runtime; None where it does."""
    if not isinstance(said, dict):
        return f"it is a {type(said).__name__}, and no dictionary of the fields of RuntimeEntry"
    if said.get("interface") != INTERFACE:
        return f"it is written for the interface {said.get('interface')}; this release has {INTERFACE}"
    usual = {**RuntimeEntry._field_defaults, "name": "", "title": ""}
    for key, value in said.items():
        if key not in usual:
            return f"there is no {key}{did_you_mean(str(key), usual)}"
        if type(value) is not type(usual[key]):
            return f"{key} is a {type(value).__name__}, and has to be a {type(usual[key]).__name__}"
    name = said.get("name", "")
    if name in names:
        return f"there is a runtime {name} already"
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name) or not said.get("title"):
        return "it needs a title, and a name of lower-case letters, digits and hyphens"
    places = [said.get("opens", ""), *(said[key] for key in ("absent", "no_witness", "imports") if said.get(key))]
    if not all(re.fullmatch(r"[\w.]+:\w+", place) for place in places):
        return "opens, absent, no_witness and imports are written as module:function"
    if not {*said.get("takes", ())} <= {"config", "build", "provider"}:
        return "takes is of config, build and provider"
    return None if said.get("kernels") in (None, "", *names) else f"there is no runtime {said['kernels']}"


_ADDED = (*added(entry_points(group=GROUP)),)
LEFT_OUT = {name: each for name, each in _ADDED if isinstance(each, str)}
"""Sentences about runtimes of other packages that could not be taken, by the names of their entry points, and about
providers of ONNX Runtime, by their runtimes' names."""
LEFT_OUT |= {f"onnxruntime-{word}": said for word, said in _PLUGGED_IN.items() if isinstance(said, str)}
RUNTIMES = (*_OWN, *(each for _, each in _ADDED if isinstance(each, RuntimeEntry)))
"""In the order in which the matrix shows them, and in which they are asked for a second opinion."""

_BY_NAME = {runtime.name: runtime for runtime in RUNTIMES}

IN_CASES = tuple(runtime.name for runtime in RUNTIMES if runtime.in_cases)
"""The names that cases and options may use."""

RUNNING = tuple(runtime.name for runtime in RUNTIMES if runtime.in_cases and not runtime.only_builds)
"""Those of them that run models."""

MAY_LACK = tuple(runtime.name for runtime in RUNTIMES if runtime.absent)
"""The names of the runtimes that a host may lack: ``--require`` can insist on them."""


def named(name: str) -> RuntimeEntry:
    """Raise KeyError for a name that is not in the table."""
    return _BY_NAME[name]


def second_opinions(name: str) -> list[RuntimeEntry]:
    """The runtimes to ask about a model that the runtime of that name fails on, in this order: those that this host
    has."""
    return [
        runtime
        for runtime in RUNTIMES
        if runtime.second_opinion and runtime.name != name and absence(runtime.name) is None
    ]


def absence(name: str | None) -> str | None:
    """Say why this host cannot run the runtime of that name; None where it can, or where no runtime is needed."""
    entry = named(name) if name else None
    if entry is None or not entry.absent:
        return None
    reason: str | Exception | None = attempt(lambda: function(entry.absent)(*filter(None, [entry.provider])))
    return f"{entry.absent} raises {summarize(reason)}" if isinstance(reason, Exception) else reason


def absence_inside(name: str) -> str | None:
    """Say why this host cannot look at the tensors inside of a model in that runtime; return None where it can."""
    entry = named(name)
    reason: str | None = function(f"{entry.inside}:absence")() if entry.inside else absence(name)
    return reason


def function(where: str) -> Callable[..., Any]:
    """The function that ``where`` names as ``module:function``; imports the module."""
    module, _, name = where.partition(":")
    named_function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return named_function
