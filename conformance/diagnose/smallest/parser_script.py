"""The reproduction of what TensorRT's parser reads otherwise: one node as a model, and a script that prints the
layers that become of it, by TensorRT's own API."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from conformance.diagnose.smallest.smallest import SCRIPT, SECONDS, reference_values
from conformance.process.arrays import Array
from conformance.process.errors import display_path
from conformance.results.records.record_types import Node, Smallest
from conformance.results.records.sanitize import one_line
from conformance.runtimes import registry
from conformance.runtimes.onnxgraph.cut import Cutter
from conformance.runtimes.onnxgraph.reads import operator_of

_SCRIPT = """\
# TensorRT's parser takes this node, and {why}:
#     {node}
from pathlib import Path
import tensorrt_rtx as trt

log = trt.Logger(trt.Logger.ERROR)
builder = trt.Builder(log)
network = builder.create_network(1)
print(trt.__version__, trt.OnnxParser(network, log).parse((Path(__file__).parent / "model.onnx").read_bytes()))
kinds = {{name.lower(): getattr(trt, name) for name in dir(trt) if name.endswith("Layer")}}
for layer in map(network.get_layer, range(network.num_layers)):
    layer.__class__ = kind = kinds.get(f"i{{layer.type.name.replace('_', '').lower()}}layer", trt.ILayer)
    names = [name for name, value in vars(kind).items() if isinstance(value, property) and name != "block_shape"]
    print(layer.type.name, [layer.get_output(i).shape for i in range(layer.num_outputs)], end=" ")
    print({{name: getattr(layer, name) for name in names}})
"""


def leave_parser_script(model: Path, inputs: Mapping[str, Array], parts_at: Node, folder: Path) -> Smallest:
    """Write ``model.onnx`` of the node at which a parsed network parts, and ``repro.py``, which is run once; give
    where it is, or ``why_not``. Raises what the cutting raises."""
    import onnx

    whole = onnx.load(model)
    cutter = Cutter(whole, reference_values(whole, registry.LITERAL, (), inputs, SECONDS))
    number = next(at for at, node in enumerate(cutter.nodes) if parts_at["node"] in (node.name, *node.output))
    cut = cutter.of([number])
    if cut is None:
        return {"why_not": "an input of the node is no tensor"}
    small = cut.edited()
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(small.model, folder / "model.onnx")
    (node,) = small.model.graph.node
    file = folder / "repro.py"
    text = one_line(onnx.printer.to_text(node), 300)
    file.write_text(_SCRIPT.format(why=one_line(str(parts_at.get("why")), 200), node=text), encoding="utf-8")
    command = [sys.executable, str(file.absolute())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SCRIPT, check=False)
    if done.returncode:
        return {"why_not": (done.stderr.strip().splitlines() or ["it said nothing"])[-1][:300]}
    return {"repro": display_path(file), "nodes": 1, "of": len(cutter.nodes), "operators": [operator_of(node)]}
