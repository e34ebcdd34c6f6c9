"""Inputs that are no single tensors: lists, tuples, mappings, objects and constants, as ``forward`` takes them.

A case file nests them. What is left of them is a flat mapping of tensors, named by their paths (``past.0.key``),
which is all that draws, graphs and runtimes know; and the call of ``forward``, which says how its arguments are put
together.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping
from typing import Any, TypeAlias

from conformance.process.errors import shown

Node: TypeAlias = dict[str, Any]
"""``{tensor: past.0.key}``, ``{constant: true}``, ``{list: [...]}``, ``{tuple: [...]}``, ``{dict: {...}}`` or ``{new:
package.Class, with: {...}}``, where ``...`` are nodes."""
Argument: TypeAlias = dict[str, Any]
"""An argument of ``forward``: its ``name``, perhaps ``as``, and what it ``is``, a node."""
FORMS = ("constant", "list", "tuple", "dict", "layers", "new")
"""The keys that say what a mapping is, one of which is given."""
LAYERS = 1_000
"""The most layers, each of which is written out."""


def flattened(
    inputs: Mapping[object, object], *, written: bool = False
) -> tuple[dict[object, object], list[Argument] | None]:
    """Return the tensors by their paths, as they stand in the case file, and the arguments of ``forward``: None where
    every input is a tensor, unless the call is ``written`` out for something else.

    Raises ValueError for what is no input.
    """
    if not written and not any(_is_structured(said) for said in inputs.values()):
        return dict(inputs), None
    tensors: dict[object, object] = {}
    arguments = []
    for name, said in inputs.items():
        own = {"name": name}
        if isinstance(said, dict) and "as" in said:
            own["as"] = said["as"]
            said = {key: value for key, value in said.items() if key != "as"}
        arguments.append({**own, "is": _node(str(name), said, tensors)})
    words = [name.replace(".", "_") for name in map(str, tensors)]
    times = Counter(words)
    for name, word in zip(tensors, words, strict=True):
        if times[word] > 1:
            raise ValueError(f"inputs: {shown(name)} and another input are both called {word} in Python")
    return tensors, arguments


def _is_structured(said: object) -> bool:
    """Return whether an input is more than one tensor, or none."""
    if said is None or isinstance(said, list):
        return True
    # a tensor without its type, or with a mistyped key, is told as such
    return (
        isinstance(said, dict)
        and "values" not in said
        and not difflib.get_close_matches("type", map(str, said), cutoff=0.75)
    )


def _node(path: str, said: Any, tensors: dict[object, object]) -> Node:
    if not _is_structured(said):
        tensors[path] = said
        return {"tensor": path}
    if said is None:
        return {"constant": None}
    if isinstance(said, list):
        return {"list": _nodes(path, said, tensors)}
    forms = [form for form in FORMS if form in said]
    if not forms:
        return {"dict": _read_mapping(path, said, tensors)}
    if len(forms) > 1:
        raise ValueError(f"inputs: {path}: give one of {' and '.join(forms)}")
    (form,) = forms
    beside = {"layers": {"of"}, "new": {"with"}}.get(form, set())
    odd = said.keys() - {form} - beside
    if odd:
        raise ValueError(f"inputs: {path}: {shown(sorted(map(str, odd))[0])} cannot stand beside {form}")
    if form == "constant":
        return {"constant": said[form]}
    if form in ("list", "tuple"):
        if not isinstance(said[form], list):
            raise ValueError(f"inputs: {path}: {form}: {shown(said[form])} is no list of inputs")
        return {form: _nodes(path, said[form], tensors)}
    if form == "layers":
        count = said[form]
        if type(count) is not int or not 0 < count <= LAYERS or "of" not in said:
            raise ValueError(f"inputs: {path}: write {{layers: 2, of: ...}}: a number up to {LAYERS:,}, and an input")
        return {"list": _nodes(path, [said["of"]] * count, tensors)}
    inner = said[form] if form == "dict" else said.get("with", {})
    if not isinstance(inner, dict):
        raise ValueError(f"inputs: {path}: {shown(inner)} is no mapping of inputs")
    if form == "dict":
        return {"dict": _read_mapping(path, inner, tensors)}
    if not isinstance(said["new"], str) or "." not in said["new"]:
        raise ValueError(f"inputs: {path}: new: {shown(said['new'])} is no name such as modules.Cache")
    return {"new": said["new"], "with": _read_mapping(path, inner, tensors)}


def _nodes(path: str, said: list[object], tensors: dict[object, object]) -> list[Node]:
    return [_node(f"{path}.{index}", inner, tensors) for index, inner in enumerate(said)]


def _read_mapping(path: str, said: Mapping[object, object], tensors: dict[object, object]) -> dict[str, Node]:
    return {str(key): _node(f"{path}.{key}", inner, tensors) for key, inner in said.items()}
