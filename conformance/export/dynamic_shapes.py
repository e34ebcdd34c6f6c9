"""Tell the exporters which dims to keep symbolic, and read what ``torch.export`` says of that."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

from conformance.case.declaration import Case
from conformance.case.dims import TensorType
from conformance.errors import causes
from conformance.export.reference import Reference


def axis_names(type_: TensorType, case: Case, static: list[str]) -> dict[int, str]:
    """The axes to export as symbolic, with a name for each: those with a dim that varies and is not static."""
    names: dict[int, str] = {}
    for axis, size in enumerate(type_.shape):
        if any(not case.dims.ranges[name].fixed and name not in static for name in size.names):
            names[axis] = size.text if size.text.isidentifier() else f"{'_'.join(sorted(size.names))}_{axis}"
    return names


def dynamic_shapes(reference: Reference, static: list[str]) -> dict[str, Any] | tuple[Any, ...] | None:
    """Return what ``torch.export`` is to keep symbolic, as forward's signature takes the inputs: by the names of its
    parameters, with a tuple for ``*args`` and a dict for ``**kwargs``. None where all dims are fixed."""
    import torch

    dynamic = torch.export.Dim.DYNAMIC  # AUTO would freeze a dim without a word
    case = reference.case
    shapes = {
        name: dict.fromkeys(axis_names(declared.type, case, static), dynamic)
        for name, declared in case.says.inputs.items()
    }
    if not any(shapes.values()):
        return None
    positional, keywords = reference.passing.passed(shapes)
    try:
        return dict(reference.passing.signature().bind(*positional, **keywords).arguments)
    except (TypeError, ValueError):  # a decorator shows a signature that is not the one forward is called by
        return (*positional, *keywords.values())


_STRUCTURAL = (AssertionError, AttributeError, IndexError, KeyError, TypeError)
"""What Python raises of a structure that is looked into and is another."""


def refusal_of_structure(error: BaseException) -> str | None:
    """The complaint of ``torch.export`` that ``dynamic_shapes`` are not structured as the inputs are, behind whatever
    was made of it; None where the exception says something of the module, as that a dim is specialised.

    ``torch/export/dynamic_shapes.py`` raises UserError of the kind INVALID_INPUT after it has compared the two, or
    what Python raises of looking into a structure that is another. Arguments that the signature does not take raise
    TypeError in ``inspect``, which is about the module.
    """
    for cause in causes(error, hidden=False):
        frames = traceback.extract_tb(cause.__traceback__)
        within = bool(frames) and Path(frames[-1].filename).as_posix().endswith("torch/export/dynamic_shapes.py")
        # torch.onnx asks it for other shapes after any UserError, and what it raises then is about its own text
        if within and not any(frame.name.startswith("refine_") for frame in frames):
            kind = getattr(getattr(cause, "error_type", None), "name", None)
            if kind == "INVALID_INPUT" or isinstance(cause, _STRUCTURAL):
                return _first_line(cause)
    return None


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
