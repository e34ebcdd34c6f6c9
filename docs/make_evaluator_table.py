"""Prints ``conformance/runtimes/evaluator_table.csv``: each version of each operator, and whether ONNX's evaluator
computes it as ONNX Runtime does. Takes a minute or two.

ONNX ships a model with data for most operators (``onnx.backend.test.case.node``), each at the newest opset. Here each
is written again at the opsets at which an earlier version of its operator was in force: inputs that were attributes
then become attributes, attributes that did not exist are left out. The same models are tried again without each of
their optional attributes, which holds the defaults of that version.
"""

from __future__ import annotations

import contextlib
import csv
import signal
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, ValueInfoProto, defs, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from conformance.runtimes.evaluator_rules import RANDOM, uses

NEWEST = 28
"""The newest opset that ONNX Runtime implements; the versions of operators beyond it cannot be asked about."""
OLDEST = 7
"""The oldest opset that ONNX Runtime implements."""
SECONDS = 20
"""How long one model may take in one runtime."""
DRAWS = {
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
}  # fmt: skip
TOLERANCE = {"float64": 1e-6, "float32": 1e-4}
"""Relative, by dtype; 1e-2 for those that are narrower."""


@dataclass(frozen=True)
class Trial:
    """A model, without an opset, and its inputs."""

    name: str
    nodes: Sequence[NodeProto]
    inputs: Mapping[str, ValueInfoProto]
    outputs: Sequence[ValueInfoProto]
    constants: Sequence[TensorProto]
    values: Mapping[str, Any]


def shipped() -> dict[str, list[Any]]:
    """ONNX's own test cases of one node, by operator."""
    from onnx.backend.test.case.node import collect_testcases

    cases = defaultdict(list)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of data that overflows on purpose
        shipped_cases = collect_testcases(None)
    for case in shipped_cases:
        nodes = case.model.graph.node
        if len(nodes) == 1 and not nodes[0].domain and case.data_sets:
            cases[nodes[0].op_type].append(case)
    return cases


def array(value: Any) -> Any:
    if isinstance(value, TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, (list, tuple)):
        return [array(part) for part in value]
    return value if value is None else np.asarray(value)


def trials(case: Any, schema: Any) -> Iterator[Trial]:
    """A shipped test case in the form that its operator had in the version of ``schema``."""
    graph = case.model.graph
    (node,) = graph.node
    newest = defs.get_schema(node.op_type)
    values = dict(zip([value.name for value in graph.input], map(array, case.data_sets[0][0]), strict=False))
    values |= {constant.name: numpy_helper.to_array(constant) for constant in graph.initializer}
    inputs: list[str] = []
    moved: list[Any] = []
    for place, name in enumerate(node.input):
        now = newest.inputs[min(place, len(newest.inputs) - 1)].name
        if (place < len(schema.inputs) and now not in schema.attributes) or (schema.inputs[-1:] and variadic(schema)):
            inputs.append(name)
        elif now in schema.attributes and name:
            if values.get(name) is None:
                return
            one = schema.attributes[now].type in (defs.OpSchema.AttrType.INT, defs.OpSchema.AttrType.FLOAT)
            with contextlib.suppress(Exception):
                value = values[name].reshape(-1)[0].item() if one else values[name].tolist()
                moved.append(helper.make_attribute(now, value))
    while inputs and not inputs[-1]:
        inputs.pop()
    given = {attribute.name: attribute for attribute in node.attribute if attribute.name in schema.attributes}
    optional = {
        name
        for name in given
        if not schema.attributes[name].required and given[name].type != onnx.AttributeProto.GRAPH
    }
    kept = [
        {*given},
        *({*given} - {name} for name in sorted(optional)),
        *([{*given} - optional] * (len(optional) > 1)),
    ]
    for names in kept:
        made = NodeProto(op_type=node.op_type, input=inputs, output=list(node.output)[: schema.max_output])
        made.attribute.extend([*(given[name] for name in sorted(names)), *moved])
        left_out = "".join(f", without {name}" for name in sorted({*given} - names))
        yield Trial(
            case.name + left_out,
            [made],
            {value.name: value for value in graph.input if value.name in inputs},
            [value for value in graph.output if value.name in made.output],
            [constant for constant in graph.initializer if constant.name in inputs],
            {value.name: values[value.name] for value in graph.input if value.name in inputs},
        )


def variadic(schema: Any) -> bool:
    return bool(schema.inputs[-1].option == defs.OpSchema.FormalParameterOption.Variadic)


def of_sequences() -> Iterator[tuple[str, Trial]]:
    """Models of the operators that ONNX ships no test of: operator, trial."""
    x, y, i, n = (
        helper.make_tensor_value_info(name, dtype, shape)
        for name, dtype, shape in (("x", 1, [2, 3]), ("y", 1, [2, 3]), ("i", 7, []), ("n", 7, []))
    )
    out = helper.make_tensor_value_info("out", 1, None)
    values = {
        "x": np.arange(6, dtype=np.float32).reshape(2, 3), "y": np.ones((2, 3), np.float32), "i": np.array(1),
    }  # fmt: skip
    pair = helper.make_node("SequenceConstruct", ["x", "y"], ["s"])
    at = helper.make_node("SequenceAt", ["s", "i"], ["out"])
    erase = helper.make_node("SequenceErase", ["s", "i"], ["t"])
    empty = helper.make_node("SequenceEmpty", [], ["s"])
    for axis, new_axis in ((0, 0), (1, 0), (1, 1)):
        concat = helper.make_node("ConcatFromSequence", ["s"], ["out"], axis=axis, new_axis=new_axis)
        yield "ConcatFromSequence", Trial("concat", [pair, concat], {"x": x, "y": y}, [out], [], values)
    for operator in ("SequenceConstruct", "SequenceAt"):
        yield operator, Trial("at", [pair, at], {"x": x, "y": y, "i": i}, [out], [], values)
    for operator, nodes, inputs in (("SequenceErase", [pair, erase], {"x": x, "y": y, "i": i}),
                                    ("SequenceEmpty", [empty], {})):  # fmt: skip
        counted = helper.make_node("SequenceLength", ["t" if inputs else "s"], ["n"])
        for name in (operator, "SequenceLength"):
            yield name, Trial(f"length after {operator}", [*nodes, counted], inputs, [n], [], values)


def versions_of() -> dict[str, list[Any]]:
    """The schemas of each operator of ONNX's own domain, from the oldest version on."""
    schemas: dict[str, list[Any]] = {}
    for schema in defs.get_all_schemas_with_history():
        if not schema.domain:
            schemas.setdefault(schema.name, []).append(schema)
    return {name: sorted(schemas[name], key=lambda schema: schema.since_version) for name in sorted(schemas)}


def answer(trial: Trial, opset: int) -> tuple[str, str]:
    """``invalid``, ``refused`` (by ONNX Runtime), ``stops`` (the evaluator), ``agrees`` or ``differs``, and of what
    stops the error."""
    import onnxruntime

    outputs = []
    for value in trial.outputs:  # other versions may have other shapes
        outputs.append(ValueInfoProto.FromString(value.SerializeToString()))
        if value.type.HasField("tensor_type"):
            outputs[-1].type.tensor_type.ClearField("shape")
    graph = helper.make_graph(trial.nodes, "g", list(trial.inputs.values()), outputs, trial.constants)
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=max(helper.find_min_ir_version_for(opsets), 4))
    try:
        data = onnx.shape_inference.infer_shapes(model).SerializeToString()
    except Exception as error:
        return "invalid", type(error).__name__
    feeds = {name: trial.values[name] for name in trial.inputs}
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    try:
        with limited():
            session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
            wanted = session.run(None, feeds)
    except Exception as error:
        return "refused", type(error).__name__
    try:
        with limited(), np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = ReferenceEvaluator(onnx.load_from_string(data)).run(None, feeds)
    except Exception as error:
        return "stops", type(error).__name__
    return ("agrees" if alike(list(got), list(wanted)) else "differs"), ""


@contextlib.contextmanager
def limited() -> Iterator[None]:
    def late(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)


def alike(got: Any, wanted: Any) -> bool:
    if isinstance(got, list) or isinstance(wanted, list):
        both = isinstance(got, list) and isinstance(wanted, list) and len(got) == len(wanted)
        return both and all(map(alike, got, wanted))
    if got is None or wanted is None:
        return got is wanted
    left, right = np.asarray(got), np.asarray(wanted)
    if left.shape != right.shape:
        return False
    if left.dtype.kind in "OUST" or right.dtype.kind in "OUST":
        return bool((left.astype(str) == right.astype(str)).all())
    if left.dtype != right.dtype:
        return False
    if left.dtype.kind not in "fV" and "float" not in str(left.dtype):
        return bool((left == right).all())
    first, second = left.astype(np.float64), right.astype(np.float64)
    relative = TOLERANCE.get(str(left.dtype), 1e-2)
    largest = np.abs(second[np.isfinite(second)]).max(initial=0.0)
    return bool(np.allclose(first, second, rtol=relative, atol=relative * largest, equal_nan=True))


def row(tried: Sequence[tuple[str, str, str]]) -> tuple[str, str]:
    """The verdict and why: of name, answer and error of each trial."""
    counts = Counter(result for _, result, _ in tried)
    asked = counts["agrees"] + counts["differs"] + counts["stops"]
    if not asked:
        return "unasked", "ONNX Runtime runs no model of it" if counts["refused"] else "no model of it"
    against = [
        f"{name} ({error})" if error else name for name, result, error in tried if result in ("differs", "stops")
    ]
    if not against:
        return "agrees", f"{asked} models"
    return "differs", f"{len(against)} of {asked}: {against[0].removeprefix('test_')}"[:56]


def main() -> None:
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    cases, own = shipped(), defaultdict(list)
    for operator, trial in of_sequences():
        own[operator].append(trial)
    made_with = ", ".join(f"{package.__name__} {package.__version__}" for package in (onnx, onnxruntime))
    print(f"# made by docs/make_evaluator_table.py with {made_with}")
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(["operator", "version", "class", "verdict", "models"])
    for operator, schemas in versions_of().items():
        for place, schema in enumerate(schemas):
            until = schemas[place + 1].since_version - 1 if place + 1 < len(schemas) else NEWEST
            opset = max(min(until, NEWEST), schema.since_version)
            if opset < OLDEST or schema.deprecated:
                continue
            if operator in DRAWS:
                verdict = ("unasked", RANDOM)
            else:
                made = [*own[operator], *(trial for case in cases[operator] for trial in trials(case, schema))]
                verdict = row([(trial.name, *answer(trial, opset)) for trial in made])
            table.writerow([operator, schema.since_version, uses(operator, opset), *verdict])


if __name__ == "__main__":
    main()
