"""ONNX Runtime on the CPU, with its graph optimizer on or off, or with another of its execution providers."""

from __future__ import annotations

import contextlib
import mmap
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.process.arrays import Array
from conformance.process.disk.onnx_models import is_large, on_disk
from conformance.process.errors import Unavailable, did_you_mean
from conformance.runtimes import telemetry  # noqa: F401
from conformance.runtimes.inferred import infer
from conformance.runtimes.onnxgraph.reads import inside
from conformance.runtimes.plugin_providers import devices, module_of
from conformance.runtimes.sequences import tensors

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto
    from onnxruntime import SessionOptions

PROVIDER = "CPUExecutionProvider"
NO_FALLBACK = "session.disable_cpu_ep_fallback"
"""The session option with which a model does not load if a provider leaves nodes to the CPU."""


@dataclass(frozen=True)
class Optimizing:
    """Set how far a model is optimized."""

    level: str = "ALL"
    """BASIC, EXTENDED, LAYOUT or ALL."""
    off: tuple[str, ...] = ()
    """The names of passes that are switched off."""
    saved: Path | None = None
    """Where the optimized model is written."""
    log: bool = False
    """Whether ONNX Runtime tells on standard error what it does."""
    reuse: bool = True
    """Whether a tensor may take the memory of one that nobody needs any more."""


@contextlib.contextmanager
def _readable(model: Path | bytes | ModelProto) -> Iterator[str | bytes]:
    """A model as a session takes it, which reads what it needs of a file before it is there."""
    if isinstance(model, Path | bytes):
        yield str(model) if isinstance(model, Path) else model
    elif is_large(model):
        with on_disk(model) as file:
            yield str(file)
    else:
        yield model.SerializeToString()


class OnnxRuntimeSession:
    """One thread, so that results and timings do not depend on what else the host does."""

    def __init__(
        self,
        model: Path | bytes | ModelProto,
        libraries: Sequence[str],
        *,
        optimize: bool,
        config: Mapping[str, str] | None = None,
        optimizing: Optimizing | None = None,
        provider: str = PROVIDER,
    ) -> None:
        """``optimizing`` is what a session with the optimizer on does in place of all that it can. Raises Unavailable
        where ONNX Runtime goes on without the ``provider``."""
        import onnxruntime

        if not devices(provider) and provider not in onnxruntime.get_available_providers():
            raise Unavailable(f"this ONNX Runtime has no {provider}")
        options, more = _options(libraries, config, provider), {}
        levels = onnxruntime.GraphOptimizationLevel
        if not optimize:
            options.graph_optimization_level = levels.ORT_DISABLE_ALL
        elif optimizing is not None:
            options.graph_optimization_level = getattr(levels, f"ORT_ENABLE_{optimizing.level}")
            if optimizing.saved is not None:
                options.optimized_model_filepath = str(optimizing.saved)
            if optimizing.log:
                options.log_severity_level = 1
            options.enable_mem_reuse = optimizing.reuse
            more = {"disabled_optimizers": list(optimizing.off)}
        with _readable(model) as source:
            self._session = onnxruntime.InferenceSession(
                source, options, providers=_providers(provider, config, options), **more
            )
        if self._session.get_providers()[0] != provider:
            raise Unavailable(f"ONNX Runtime goes on without its {provider}")
        self._inputs = [argument.name for argument in self._session.get_inputs()]
        self.arithmetic: Mapping[str, object] = {
            "provider": provider,
            "optimizer": optimize,
            "storage": "float32",
            "arithmetic": "float32",
            **({"config": dict(config)} if config else {}),
        }

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        feed = {name: inputs[name] for name in self._inputs if name in inputs}
        return tensors(self._session.run(None, feed))


_EXACT: Mapping[str, Mapping[str, str]] = {
    "CUDAExecutionProvider": {"use_tf32": "0"},
    "OpenVINOExecutionProvider": {"device_type": "CPU", "precision": "FP32"},
}
"""Options with which providers compute in float32 where a model says float32."""


def _providers(provider: str, config: Mapping[str, str] | None, options: SessionOptions) -> list[object] | None:
    """A provider before that of the CPU, which takes the nodes that it does not, unless the session options forbid
    that. None where ``options`` got the devices of the provider instead."""
    if provider == PROVIDER:
        return [PROVIDER]
    start = prefix(provider)
    said = {key.removeprefix(start): value for key, value in (config or {}).items() if key.startswith(start)}
    own = devices(provider)
    if own:
        exact = {key: value for key, value in _EXACT.get(provider, {}).items() if key != "device_type"}
        options.add_provider_for_devices(own, exact | said)
        return None
    rest = [] if (config or {}).get(NO_FALLBACK) == "1" else [PROVIDER]
    return [(provider, {**_EXACT.get(provider, {}), **said}), *rest]


def prefix(provider: str) -> str:
    """Return the beginning of session options that are a provider's: ``ep.cudaexecutionprovider.``."""
    return f"ep.{provider.lower()}."


def _options(libraries: Sequence[str], config: Mapping[str, str] | None, provider: str) -> SessionOptions:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # its warnings are not about this model's answers
    for key, value in (config or {}).items():
        of_provider = key.startswith(prefix(provider))  # which gets it itself
        if not of_provider and (key != NO_FALLBACK or provider != PROVIDER):  # the CPU's falls back to nothing
            options.add_session_config_entry(key, value)
    for library in libraries:
        options.register_custom_ops_library(library)
    return options


def check_config(config: Mapping[str, str], provider: str = PROVIDER) -> None:
    """Raise ValueError for a key that the installed ONNX Runtime does not know, nor the provider's own library.

    ``add_session_config_entry`` takes any key and says nothing. The keys that are looked up stand as text in a
    library, so that a key which is not there has no effect.
    """
    import onnxruntime

    start = prefix(provider)
    for key in config:
        name = key.removeprefix(start)
        if name != key and not knows(name, provider):
            known = sorted(each.removeprefix(start) for each in _known_keys(provider) if each.startswith(start))
            text = f"{provider} has no option '{name}'"
            raise ValueError(text + (f"; it has {', '.join(known)}" if known else ""))
        if not knows(name, provider):
            text = f"ONNX Runtime {onnxruntime.__version__} has no session option '{key}'"
            raise ValueError(f"{text}{did_you_mean(key, _known_keys())}")


@cache
def knows(key: str, provider: str = PROVIDER) -> bool:
    """Return whether the installed ONNX Runtime, or the provider's own library, has an option of that key."""
    name = key.encode() + b"\0"
    return any(library.find(name) >= 0 for library in _libraries(provider))


def _libraries(provider: str = PROVIDER) -> Iterator[mmap.mmap]:
    import onnxruntime.capi

    module = None if provider == PROVIDER else module_of(provider)
    files = sorted(Path(onnxruntime.capi.__path__[0]).glob("*onnxruntime*.so*"))
    for file in [*files, *([] if module is None else [Path(module.get_library_path())])]:
        with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as library:
            yield library


def _known_keys(provider: str = PROVIDER) -> list[str]:
    keys = re.compile(rb"(?:session|optimization|ep|mlas)\.[a-z0-9_]+(?:\.[A-Za-z0-9_]+)*")
    found = {match.decode() for library in _libraries(provider) for match in keys.findall(library)}
    return sorted(key for key in found if not key.endswith((".h", ".cc")))  # names of source files


@contextlib.contextmanager
def open_optimized(
    model: Path, libraries: Sequence[str], config: Mapping[str, str] | None = None
) -> Iterator[OnnxRuntimeSession]:
    yield OnnxRuntimeSession(model, libraries, optimize=True, config=config)


@contextlib.contextmanager
def open_with_provider(
    model: Path, libraries: Sequence[str], config: Mapping[str, str] | None = None, provider: str = PROVIDER
) -> Iterator[OnnxRuntimeSession]:
    yield OnnxRuntimeSession(model, libraries, optimize=True, config=config, provider=provider)


@contextlib.contextmanager
def open_unoptimized(
    model: Path, libraries: Sequence[str], config: Mapping[str, str] | None = None
) -> Iterator[OnnxRuntimeSession]:
    yield OnnxRuntimeSession(model, libraries, optimize=False, config=config)


@contextlib.contextmanager
def open_literal(model: Path, libraries: Sequence[str]) -> Iterator[OnnxRuntimeSession]:
    """Compute what the graph says and nothing else, which for fp16 takes more than switching the optimizer off.

    The CPU has few fp16 kernels. ONNX Runtime computes the other operators in fp32, and where two of these follow one
    another, or a cast, it leaves out the rounding to fp16 between them, also across one operator that has a kernel.
    Two Identities in a row keep the rounding.
    """
    import onnx

    loaded = infer(onnx.load(model))
    if _keep_roundings(loaded.graph):
        yield OnnxRuntimeSession(loaded, libraries, optimize=False)
    else:
        yield OnnxRuntimeSession(model, libraries, optimize=False)


def _keep_roundings(graph: GraphProto) -> bool:
    """Put two Identities behind each node that makes an fp16 tensor, and say whether there was such a node."""
    from onnx import NodeProto, TensorProto, helper

    values = (*graph.value_info, *graph.output)
    fp16 = {value.name for value in values if value.type.tensor_type.elem_type == TensorProto.FLOAT16}
    nodes: list[NodeProto] = []
    changed = False
    for node in graph.node:
        for inner in inside(node):
            changed |= _keep_roundings(inner)
        made = NodeProto.FromString(node.SerializeToString())
        nodes.append(made)
        for index, name in enumerate(node.output):
            if name in fp16:
                changed = True
                made.output[index] = f"{name}/made"
                for source, target in ((f"{name}/made", f"{name}/kept"), (f"{name}/kept", name)):
                    nodes.append(helper.make_node("Identity", [source], [target], name=source))
    del graph.node[:]
    graph.node.extend(nodes)
    del graph.value_info[:]
    return changed


def kernels(
    model: Path,
    libraries: Sequence[str],
    inputs: Mapping[str, Array],
    config: Mapping[str, str] | None = None,
    provider: str = PROVIDER,
) -> dict[str, object]:
    """Find what really computes a model, from one profiled run.

    ``kernels`` counts kernels by operator and dtype of the first input, ``arithmetic`` names the dtypes of the
    kernels that compute rather than move values. With another provider than the CPU's, ``nodes`` counts them by the
    provider that they ran on.

    The CPU has few fp16 kernels, so that most of an fp16 model is computed in float32; of an int8 model the operators
    that ONNX Runtime can fuse with their Q/DQ are computed in int8.
    """
    import json
    import tempfile

    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        options = _options(libraries, config, provider)
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "profile")
        session = onnxruntime.InferenceSession(str(model), options, providers=_providers(provider, config, options))
        names = {argument.name for argument in session.get_inputs()}
        session.run(None, {name: array for name, array in inputs.items() if name in names})
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    counts: Counter[tuple[str, str]] = Counter()
    nodes: Counter[str] = Counter()
    for event in events:
        arguments = event.get("args", {})
        if event.get("cat") == "Node" and "op_name" in arguments:
            types = arguments.get("input_type_shape") or [{}]
            counts[arguments["op_name"], next(iter(types[0]), "none")] += 1
            nodes[arguments.get("provider") or PROVIDER] += 1
    computing = {dtype for (operator, dtype) in counts if operator not in MOVES}
    names_of = {"float": "float32", "double": "float64"}
    return {
        "arithmetic": ", ".join(sorted(names_of.get(dtype, dtype) for dtype in computing)) or "none",
        "kernels": {f"{operator} {dtype}": count for (operator, dtype), count in sorted(counts.items())},
        **({} if provider == PROVIDER else {"nodes": dict(sorted(nodes.items()))}),
    }


MOVES = {
    "Cast", "Concat", "Constant", "ConstantOfShape", "DequantizeLinear", "Expand", "Flatten", "Gather", "Identity",
    "Pad", "QuantizeLinear", "ReorderInput", "ReorderOutput", "Reshape", "Shape", "Size", "Slice", "Split", "Squeeze",
    "Tile", "Transpose", "Unsqueeze", "Where",
}  # fmt: skip
"""Operators that move or convert values."""
