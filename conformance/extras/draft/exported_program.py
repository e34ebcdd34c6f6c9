"""The case of a program that ``torch.export`` or ``torch.onnx`` has made: its inputs, dims and outputs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from conformance.process.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch.export import ExportedProgram

OPEN = 8
"""How far above its lowest size a dim goes that the program bounds only from below."""


def case_of_program(program: ExportedProgram, inputs: Mapping[str, object] | None = None) -> dict[str, object]:
    """Return ``inputs`` and ``dims`` of a case, as the program's own signature has them; of ``inputs`` that are given
    the dims that these name.

    Raises UserError where forward takes more than tensors, or whole numbers of which nothing says the range.
    """
    if inputs is not None:
        named = {*re.findall(r"\w+", str(inputs))}
        return {"dims": {name: sizes for name, sizes in _dims(program).items() if name in named}}
    signature = program.module_call_graph[0].signature
    by_position, by_keyword = signature.in_spec.children()
    if not all(spec.is_leaf() for spec in (*by_position.children(), *by_keyword.children())):
        raise UserError("the program takes lists or mappings of tensors; give the module and its inputs instead")
    names = list(program.graph_signature.user_inputs)
    keywords = dict(zip(names[len(by_position.children()) :], by_keyword.context or (), strict=True))
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    found: dict[str, object] = {}
    for name in names:
        value: Any = values.get(name)
        if not hasattr(value, "shape"):
            raise UserError(f"{name} is no tensor; give the module and its inputs instead")
        dtype = str(value.dtype).removeprefix("torch.")
        if not value.dtype.is_floating_point and dtype != "bool":
            text = f"{name} holds whole numbers ({dtype}), and the program does not say which: give inputs"
            raise UserError(f"{text}, such as inputs={{{name!r}: {{'type': ..., 'values': {{'integers': ...}}}}}}")
        entry = {"type": f"{dtype}[{', '.join(map(str, value.shape))}]"}
        found[name] = {**entry, "as": keywords[name]} if name in keywords else entry
    return {"inputs": found, "dims": _dims(program)}


def _dims(program: ExportedProgram) -> dict[str, str]:
    """Return the range of each size that is open."""
    dims: dict[str, str] = {}
    for symbol, bounds in program.range_constraints.items():
        if symbol.is_symbol:
            low = int(bounds.lower)
            high = int(bounds.upper) if bounds.upper.is_finite else low + OPEN
            dims[str(symbol)] = f"{low}..{min(high, 2**31 - 1)}"
    return dims
