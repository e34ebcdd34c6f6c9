"""Write the tests of operators that ``onnx`` ships as files in ONNX's own layout."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Shipped:
    """One test: its name, the operator that it is about, and its model."""

    name: str
    operator: str
    file: Path


def write_tests(folder: Path) -> list[Shipped]:
    """Return all tests, sorted by name; they are written once."""
    index = folder / "index.json"
    if not index.is_file():
        operators = _write(folder)
        index.write_text(json.dumps(operators, indent=1), encoding="utf-8")
    known = json.loads(index.read_text(encoding="utf-8"))
    return [Shipped(name, known[name], folder / name / "model.onnx") for name in sorted(known)]


def _write(folder: Path) -> dict[str, str]:
    from onnx.backend.test.case.node import collect_testcases

    operators: dict[str, str] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its generators overflow on purpose
        tests = collect_testcases(None)
    for test in tests:
        place = folder / test.name
        place.mkdir(parents=True, exist_ok=True)
        (place / "model.onnx").write_bytes(test.model.SerializeToString())
        graph = test.model.graph
        for number, (inputs, outputs) in enumerate(test.data_sets):
            data = place / f"test_data_set_{number}"
            data.mkdir(exist_ok=True)
            for what, values, infos in (("input", inputs, graph.input), ("output", outputs, graph.output)):
                for at, (value, info) in enumerate(zip(values, infos, strict=True)):
                    (data / f"{what}_{at}.pb").write_bytes(_proto(value, info).SerializeToString())
        own = {node.op_type for node in graph.node}
        operators[test.name] = own.pop() if len(own) == 1 else ""
    for (
        name
    ) in operators:  # of several nodes, as those of a function written out: what the test without that is about
        known = operators.get(name.partition("_expanded")[0])
        operators[name] = operators[name] or known or "several"
    return operators


def _proto(value: Any, info: Any) -> Any:
    """Return a value as ONNX stores it, by the type of its input or output."""
    from onnx import TensorProto, numpy_helper

    kind = info.type.WhichOneof("value")
    if isinstance(value, TensorProto):
        return value
    makers: dict[str, Any] = {
        "map_type": numpy_helper.from_dict, "sequence_type": numpy_helper.from_list,
        "optional_type": numpy_helper.from_optional, "tensor_type": numpy_helper.from_array,
    }  # fmt: skip
    return makers[kind](value, info.name)
