"""The network that defects are planted in, changes of its converted models, and what its records have to say."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from conformance.case.plan.cell import Cell
from conformance.results.records import text
from conformance.results.records.explanation import greatest
from conformance.results.records.record import Record
from tests.kit.cases import Bench, module_of, say, verdict
from tests.kit.modules import net_of

LAYERS = {"first": "Conv2d(3, 8, 3, padding=1)", "second": "Conv2d(8, 4, 3, padding=1)", "last": "Linear(4, 5)"}


def returning(expression: str) -> str:
    """The network with this for what it returns."""
    return net_of(expression, "x = self.second(torch.relu(self.first(x)))", **LAYERS)


NET = returning("self.last(x.permute(0, 2, 3, 1))")


TWO_OUTPUTS = returning("self.last(x.permute(0, 2, 3, 1)), x.abs()")

COMMON = """
runtimes: onnxruntime
onnxruntime: {config: {session.x64quantprecision: 1}}
specials: false
export: {torchscript: [17]}
"""
"""With kernels that saturate on no processor, since that would drown what is planted."""
NET_INPUT = module_of("Net", shape="batch, 3, 6, 6")
BODY = say(NET_INPUT, COMMON, "precisions: {fp16: {}, int8: {}}")

Change = Callable[[onnx.ModelProto], None]

CONVERTED = pytest.mark.parametrize("precision", ["fp16", "int8"])


def cell_of(bench: Bench, check: str, precision: str, body: str = BODY, python: str = NET) -> Cell:
    return bench.cell(body, python, check=check, precision=precision)


def run(bench: Bench, check: str, precision: str, body: str = BODY, python: str = NET) -> Record:
    return bench.run_cell(cell_of(bench, check, precision, body, python), examples=2)


def all_of(bench: Bench, body: str, python: str = NET) -> dict[str, Record]:
    """The records of all cells, by ``check precision``."""
    return {f"{one.check} {one.precision}": bench.run_cell(one, examples=2) for one in bench.cells(body, python)}


WHO = {"precision": "the conversion to this precision", "runtime": "the runtime", "exporter": "the exporter"}


def assert_blamed(record: Record, error: str, fault: str, stage_of_loss: str) -> None:
    """It failed in the comparison, and both the record and its text say where the accuracy went."""
    assert verdict(record) == ("failed", "compare", error, fault) and record.loss is not None
    assert list(record.loss) == ["export", "conversion", "optimizer"] and greatest(record.loss) == stage_of_loss
    shown = text.failure(record)
    assert f"at fault: {WHO[fault]}" in shown
    table = shown.split("loss by stage")[1]
    assert all(f"  {stage} " in table for stage in record.loss)


def initializer(model: onnx.ModelProto, name: str) -> onnx.TensorProto:
    return next(one for one in model.graph.initializer if one.name == name)


def change_initializer(model: onnx.ModelProto, name: str, change: Callable[[Any], Any]) -> None:
    tensor = initializer(model, name)
    before = numpy_helper.to_array(tensor)
    tensor.CopyFrom(numpy_helper.from_array(np.asarray(change(before)).astype(before.dtype), name))


def fresh(bench: Bench) -> Bench:
    """The bench with another store, as a planted model has the key of the sound one."""
    return Bench(bench.folder, bench.store / "planted")


def redirect(model: onnx.ModelProto, place: int = 0) -> str:
    """Name an output anew where it is made, and return the new name; nodes that are added make the output of it."""
    name = model.graph.output[place].name
    maker = next(node for node in model.graph.node if name in node.output)
    maker.output[list(maker.output).index(name)] = f"planted/{place}"
    return f"planted/{place}"


def behind(model: onnx.ModelProto, operator: str, *more: Any, **attributes: Any) -> None:
    """Puts a node behind the output at a ``place``, which is the first unless ``place`` says otherwise."""
    place = attributes.pop("place", 0)
    name, before = model.graph.output[place].name, redirect(model, place)
    names = [f"planted/{place}/{index}" for index, _ in enumerate(more)]
    for one, value in zip(names, more, strict=True):
        value = value if isinstance(value, np.ndarray) else np.asarray(value, "float32")
        model.graph.initializer.append(numpy_helper.from_array(value, one))
    model.graph.node.append(helper.make_node(operator, [before, *names], [name], f"planted{place}", **attributes))


def zero_point_off_by_one(model):
    change_initializer(model, "/Relu_output_0_zero_point", lambda zero: zero + 1)


def scale_off_by_two(model):
    change_initializer(model, "first.weight_scale", lambda scales: scales * 2)


def activation_at_an_eighth_of_its_range(model):
    change_initializer(model, "/Relu_output_0_scale", lambda scales: scales / 8)


def to_bfloat16(values):
    bits = values.astype(np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return rounded.astype(np.uint32).view(np.float32)


def weights_in_bfloat16(model):
    for one in model.graph.initializer:
        if one.data_type == TensorProto.FLOAT16:
            change_initializer(model, one.name, to_bfloat16)
