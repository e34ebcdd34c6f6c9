"""ONNX Runtime on the CPU, with its graph optimizer on or off."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance.compare import Array

if TYPE_CHECKING:
    from onnx import GraphProto

PROVIDER = "CPUExecutionProvider"


class OnnxRuntimeSession:
    """One thread, so that results and timings do not depend on what else the host does."""

    def __init__(self, model: Path | bytes, libraries: Sequence[str], *, optimize: bool) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4  # its warnings are not about this model's answers
        if not optimize:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        for library in libraries:
            options.register_custom_ops_library(library)
        self._session = onnxruntime.InferenceSession(
            model if isinstance(model, bytes) else str(model), options, providers=[PROVIDER]
        )
        self._inputs = [one.name for one in self._session.get_inputs()]
        self.arithmetic: Mapping[str, Any] = {
            "provider": PROVIDER,
            "optimizer": optimize,
            "storage": "float32",
            "arithmetic": "float32",
        }

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        feed = {name: inputs[name] for name in self._inputs if name in inputs}
        outputs: list[Array] = self._session.run(None, feed)
        return outputs


@contextlib.contextmanager
def open_optimized(model: Path, libraries: Sequence[str]) -> Iterator[OnnxRuntimeSession]:
    yield OnnxRuntimeSession(model, libraries, optimize=True)


@contextlib.contextmanager
def open_unoptimized(model: Path, libraries: Sequence[str]) -> Iterator[OnnxRuntimeSession]:
    yield OnnxRuntimeSession(model, libraries, optimize=False)


@contextlib.contextmanager
def open_literal(model: Path, libraries: Sequence[str]) -> Iterator[OnnxRuntimeSession]:
    """Computes what the graph says and nothing else, which for fp16 takes more than the optimizer off.

    The CPU has few fp16 kernels. ONNX Runtime computes the other operators in fp32, and where two of them follow one
    another, or a cast, it leaves out the rounding between them. An Identity in between, which has a kernel, keeps it.
    """
    import onnx

    loaded = onnx.shape_inference.infer_shapes(onnx.load(model))
    if _keep_roundings(loaded.graph):
        yield OnnxRuntimeSession(loaded.SerializeToString(), libraries, optimize=False)
    else:
        yield OnnxRuntimeSession(model, libraries, optimize=False)


def _keep_roundings(graph: GraphProto) -> bool:
    """Puts an Identity behind each node that makes an fp16 tensor; whether there was one."""
    from onnx import NodeProto, TensorProto, helper

    values = (*graph.value_info, *graph.output)
    fp16 = {one.name for one in values if one.type.tensor_type.elem_type == TensorProto.FLOAT16}
    nodes: list[NodeProto] = []
    found = False
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                found |= _keep_roundings(inner)
        made = NodeProto.FromString(node.SerializeToString())
        nodes.append(made)
        for index, name in enumerate(node.output):
            if name in fp16:
                found = True
                made.output[index] = f"{name}/made"
                nodes.append(helper.make_node("Identity", [f"{name}/made"], [name], name=f"{name}/made"))
    del graph.node[:]
    graph.node.extend(nodes)
    del graph.value_info[:]
    return found
