"""The names that the runtime asks of TensorRT are in every recorded version."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

from conformance.runtimes import tensorrt as runtime
from tests.tensorrt_runtime.support import DOUBLES


def _surface(version: str) -> set[str]:
    """Every name of a recorded binding: classes, functions, methods, properties, members."""
    told = json.loads((DOUBLES / f"tensorrt-{version}.json").read_text())
    found: set[str] = set()

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                found.add(name)
                walk(inner)
        elif isinstance(value, list):
            for inner in value:
                if isinstance(inner, str):
                    found.add(inner)
                else:
                    walk(inner)

    walk(told)
    return found


def _used_names() -> set[str]:
    """The attributes that the runtime asks for, of whatever object."""
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in Path(runtime.__file__).parent.glob("*.py")]
    return {node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def test_the_runtime_uses_no_name_that_a_later_version_removed():
    shared = _used_names() & _surface("8.6")
    assert len(shared) > 40  # it does look at the right names
    for version in ("10.12", "11.0"):
        removed = shared - _surface(version)
        # free is pycuda's; reallocate_output is our own method, which 8.6 calls and 10 calls by another name
        assert removed <= {"free", "reallocate_output"}, f"{version} has no {sorted(removed)}"


def test_a_name_that_was_removed_would_be_noticed():
    assert "build_engine" in _surface("8.6")
    assert "num_bindings" in _surface("8.6")
    assert not {"build_engine", "num_bindings"} & _surface("10.12")
