"""A draft as the text of a case file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from conformance.extras.draft.drafting import Draft, Request
from conformance.extras.draft.guessed_inputs import Constant, Guess
from conformance.judge.case_edits import flow
from conformance.results.records.sanitize import one_line


def as_text(
    name: str,
    request: Request,
    draft: Draft,
    left_out: Mapping[str, str],
    awake: bool,
    about: str = "",
    fails: Sequence[Mapping[str, object]] = (),
) -> str:
    """The case file. ``left_out`` are exporters that are not in it, with what they said; ``awake`` wakes weights;
    ``fails`` are failures that are declared."""
    about = about or f"{request.module} as it comes"
    lines = [f"{name}:", f"  about: {about}; says nothing yet of why somebody cares."]
    lines.append(f"  module: {request.module}")
    if request.given:
        lines.append(f"  with: {flow(dict(request.given))}")
    if request.submodule is not None:
        lines.append(f"  submodule: {request.submodule}")
    if awake:
        lines.append("  weights: awake                       # parts of the fresh module did not show in its outputs")
    lines.append("  inputs:")
    for input_name, tree in draft.inputs.items():
        why = f"  # {tree.why}" if isinstance(tree, Guess) and tree.why else ""
        said = input_of(draft, input_name, draft.held)
        value = f'"{said}"' if isinstance(said, str) else flow(said)
        lines.append(f"    {input_name}: {value}{why}")
    if draft.dims:
        lines.append("  dims:                                # sizes at which PyTorch ran; widen them to yours")
        lines += [f"    {dim}: {sizes}" for dim, sizes in draft.dims.items()]
    if draft.returns:
        lines.append(f"  returns: [{', '.join(draft.returns)}]")
        lines += _left_out(draft.left_out)
    lines.append("  export:")
    for exporter, opset in (("torchscript", 17), ("dynamo", 20)):
        if exporter in left_out:
            lines.append(f"    # {exporter}: [{opset}] does not export it: {left_out[exporter]}")
        else:
            lines.append(f"    {exporter}: [{opset}]")
    if fails:
        lines += ["  fails:", *(f"    - {flow(entry)}" for entry in fails)]
    return "\n".join(lines) + "\n"


def _left_out(left_out: Mapping[str, str]) -> Iterator[str]:
    """Return what is not compared, in comments; what is left out for the same reason together."""
    for why in dict.fromkeys(left_out.values()):
        yield f"    # not compared: {one_line(', '.join(path for path in left_out if left_out[path] == why))}: {why}"


def input_of(draft: Draft, name: str, held: Mapping[str, int]) -> object:
    """Return an input as a case says it, with numbers for the dims that are ``held``."""
    said = _write_argument(draft.inputs[name], held)
    if name not in draft.keywords:
        return said
    if not isinstance(said, dict):
        said = {"type" if isinstance(said, str) else "constant" if said is None else "list": said}
    return {**said, "as": name}


def _write_argument(tree: Any, held: Mapping[str, int]) -> object:
    """Return an argument of forward as a case says it, where dims that are held are numbers."""
    if isinstance(tree, Constant):
        return None if tree.value is None else {"constant": tree.value}
    if isinstance(tree, Mapping):
        return {"dict": {name: _write_argument(inner, held) for name, inner in tree.items()}}
    if not isinstance(tree, Guess):
        inner = [_write_argument(part, held) for part in tree]
        return {"tuple": inner} if isinstance(tree, tuple) else inner
    kind = _fixed(tree.type, held)
    return kind if tree.said is None else {"type": kind, "values": _fixed(dict(tree.said), held)}


def _fixed(said: Any, held: Mapping[str, int]) -> object:
    """Return a part of a case with numbers for the dims that are held."""
    if isinstance(said, Mapping):
        return {name: _fixed(inner, held) for name, inner in said.items()}
    for dim, size in held.items() if isinstance(said, str) else ():
        said = re.sub(rf"\b{dim}\b", str(size), said)
    return said
