"""From an ONNX model to the bytes of an engine."""

from __future__ import annotations

import functools
import hashlib
import time
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from conformance.process.errors import Unavailable
from conformance.runtimes.onnxgraph.mapped import read_graph
from conformance.runtimes.onnxgraph.reads import graphs, nodes
from conformance.runtimes.tensorrt.build_options import MIB, Build, BuildOptions
from conformance.runtimes.tensorrt.engines import Engines
from conformance.runtimes.tensorrt.refusals import Refusal, only_noise, read_refusals

if TYPE_CHECKING:
    from onnx import GraphProto


class UnsupportedModel(RuntimeError):
    """TensorRT's parser refuses the model. Cause: an operator, dtype or attribute that it does not know; the text has
    the node and the parser's own words. Remedy: another opset or symbolic, or a plugin library."""

    def __init__(self, refusals: list[Refusal], otherwise: str = "") -> None:
        super().__init__("; ".join(map(str, refusals)) or otherwise)
        self.refusals = refusals


class BuildFailed(RuntimeError):
    """TensorRT built no engine. Cause: no kernel for a node in these shapes and this precision, or too little
    workspace."""


class BadProfile(BuildFailed):
    """TensorRT refuses the range of shapes that the engine is to serve. Cause: sizes of an input that the graph does
    not allow, or that are out of order."""


class ShapeInput(RuntimeError):
    """An input's value decides a shape, which an optimization profile, made of shapes alone, cannot say. Remedy: make
    the value a dim of the case."""


@functools.cache
def make_log(trt: Any) -> Any:
    """The logger of this process, which keeps errors and warnings instead of printing them.

    A process has only this logger and keeps it to its end: TensorRT's plugins keep a bare pointer to the logger that
    they were given last.
    """

    class Log(trt.ILogger):
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.lines: list[tuple[bool, str]] = []

        def log(self, severity: object, msg: str) -> None:
            serious = severity in (trt.ILogger.Severity.ERROR, trt.ILogger.Severity.INTERNAL_ERROR)
            if (serious or severity == trt.ILogger.Severity.WARNING) and not only_noise(msg):
                self.lines.append((serious, msg.strip()))

        def forget(self) -> None:
            """Drop what was said so far, which was about another engine."""
            self.lines.clear()

        def errors(self) -> str:
            """The last errors in the order in which they were said; if there is none the last warnings, as TensorRT
            only warns that CUDA does not start."""
            for wanted in (True, False):
                said = dict.fromkeys(text for serious, text in self.lines[-20:] if serious is wanted)
                if said:
                    return "; ".join(said)
            return "no reason given"

    return Log()


@functools.cache
def check_cuda(trt: ModuleType, log: Any) -> None:
    """Raise Unavailable where TensorRT cannot use the GPU that the driver knows.

    A builder is asked before anything else is made: it tells by an error, as not all of TensorRT 8.6 does.
    """
    try:
        trt.Builder(log)
    except TypeError as error:  # which pybind11 raises for a factory that made nothing
        text = (
            f"TensorRT {trt.__version__} cannot use the GPU: {log.errors()} (where the driver is older than the CUDA "
            "of this TensorRT, update it, or install TensorRT for the driver's CUDA, such as tensorrt-cu12)"
        )
        raise Unavailable(text) from error


def strongly_typed(trt: ModuleType) -> bool:
    """Return whether the dtypes of the model bind the builder.

    Before TensorRT 10 they were only a wish. A release either has the flag or, as 11, knows no other kind of network.
    """
    flags = trt.NetworkDefinitionCreationFlag.__members__
    return "STRONGLY_TYPED" in flags or "EXPLICIT_BATCH" not in flags


def load_plugins(trt: ModuleType, log: Any, build: Build) -> None:
    """Load TensorRT's own plugins, and the libraries that the case names. OSError for one that cannot be loaded."""
    trt.init_libnvinfer_plugins(log, "")
    for name in build.options.plugins:
        _load_plugin(trt, name)


@functools.cache
def _load_plugin(trt: ModuleType, name: str) -> None:
    """Load a plugin library once in a process: TensorRT complains of plugins that are registered already.

    A library registers its creators as it is loaded, or exports a function that lists them, which the registry calls.
    """
    import ctypes

    library = ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
    if any(hasattr(library, function) for function in ("getCreators", "getPluginCreators")):
        trt.get_plugin_registry().load_library(name)


def recipe() -> str:
    """A hash of how engines are built: other code may give other engines for the same options."""
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()


def make_engine(
    trt: ModuleType, log: Any, model: Path, build: Build, cache: Engines | None, host: Mapping[str, object]
) -> tuple[bytes, float]:
    """The serialized engine and the seconds that building took.

    ``host`` is what the timing cache depends on. Raises UnsupportedModel, ShapeInput or BuildFailed.
    """
    start = time.perf_counter()
    builder = trt.Builder(log)
    network = parse(trt, log, builder, model)
    if build.watched and not network.mark_unfused_tensors_as_debug_tensors():
        raise BuildFailed(f"the tensors inside cannot be marked: {log.errors()}")
    config = builder.create_builder_config()
    configure(trt, config, build.options)
    if hasattr(config, "profiling_verbosity"):
        config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    if not strongly_typed(trt):
        _allow_precisions(trt, config, model)
    add_profile(log, builder, config, network, build)
    timings = None
    if build.options.timing_cache and cache is not None:
        timings = _timings(config, cache.timings(host))
        log.forget()  # that kept timings are refused explains no failure of this build
    engine = builder.build_serialized_network(network, config)
    if engine is None:
        raise BuildFailed(log.errors())
    if timings is not None and cache is not None:
        cache.put_timings(host, bytes(timings.serialize()))
    return bytes(engine), time.perf_counter() - start


def parse(trt: ModuleType, log: Any, builder: Any, model: Path) -> Any:
    """Return the network that TensorRT's parser makes of a model. Raises UnsupportedModel."""
    flags = trt.NetworkDefinitionCreationFlag
    wanted = "STRONGLY_TYPED" if strongly_typed(trt) else "EXPLICIT_BATCH"
    flag = getattr(flags, wanted, None)  # absent where TensorRT does so anyway, as 11 does
    network = builder.create_network(0 if flag is None else 1 << int(flag))
    parser = trt.OnnxParser(network, log)
    # The path is for weights that are stored beside the model.
    if not parser.parse(model.read_bytes(), str(model)):
        raise UnsupportedModel(read_refusals(parser, model, [text for _, text in log.lines]), log.errors())
    return network


def configure(trt: ModuleType, config: Any, options: BuildOptions) -> None:
    """Set the options of a case that every TensorRT has."""
    if options.workspace is not None:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, options.workspace * MIB)
    if options.optimization_level is not None:
        config.builder_optimization_level = options.optimization_level
    if options.hardware_compatibility == "ampere_plus":
        config.hardware_compatibility_level = trt.HardwareCompatibilityLevel.AMPERE_PLUS
    if not options.tf32:
        config.clear_flag(trt.BuilderFlag.TF32)


def _allow_precisions(trt: ModuleType, config: Any, model: Path) -> None:
    """Let the builder use the precisions that the model has. Before TensorRT 10 it refuses a network with another
    precision than float32 otherwise, whether the cell's precision or the module itself brought it."""
    for name in precisions_of(read_graph(model).graph):
        config.set_flag(getattr(trt.BuilderFlag, name))


def precisions_of(graph: GraphProto) -> list[str]:
    """List the precisions of an ONNX graph and its bodies besides float32.

    ``FP16`` for float16, ``INT8`` for Q/DQ.
    """
    from onnx import TensorProto

    types: set[int] = set()
    for one in graphs(graph):
        types |= {value.type.tensor_type.elem_type for value in (*one.input, *one.output, *one.value_info)}
        types |= {initializer.data_type for initializer in one.initializer}
    names: set[str] = set()
    for node in nodes(graph):
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            names.add("INT8")
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to":
                types.add(attribute.i)
            if attribute.HasField("t"):
                types.add(attribute.t.data_type)
    return sorted(names | ({"FP16"} if TensorProto.FLOAT16 in types else set()))


def add_profile(log: Any, builder: Any, config: Any, network: Any, build: Build) -> None:
    """Add one profile for all shapes; a network whose shapes are fixed has none. Raises ShapeInput and BadProfile."""
    profile = builder.create_optimization_profile()
    dynamic = False
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        if tensor.is_shape_tensor:
            raise ShapeInput(f"the value of input {tensor.name} decides a shape; make it a dim of the case")
        if any(size < 0 for size in tensor.shape):
            dynamic = True
            low, typical, high = build.shapes[tensor.name]
            try:
                profile.set_shape(tensor.name, low, typical, high)
            except (RuntimeError, ValueError) as error:  # as for a negative size
                raise BadProfile(f"{tensor.name} in {low} to {high}: {error}") from error
    # a profile that is out of order raises nothing, and is refused by a number below 0
    if dynamic and config.add_optimization_profile(profile) < 0:
        ranges = ", ".join(f"{name} in {low} to {high}" for name, (low, _, high) in build.shapes.items())
        raise BadProfile(f"{ranges}; {log.errors()}")


def _timings(config: Any, kept: bytes) -> Any:
    """The timing cache that the builder uses: what was kept, or an empty one where TensorRT refuses that."""
    timings = config.create_timing_cache(kept)
    if timings is None or not config.set_timing_cache(timings, False):  # another GPU's, or damaged
        timings = config.create_timing_cache(b"")
        config.set_timing_cache(timings, False)
    return timings
