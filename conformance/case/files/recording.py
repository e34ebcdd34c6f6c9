"""Model the recorded data of a case, and say what is drawn around it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from conformance.case.files.field_types import FilesBeside, Listed, Says
from conformance.case.files.limits import ENTRIES
from conformance.process.arrays import Array
from conformance.process.disk.recorded_data import RecordedData, files_of, read_recorded
from conformance.process.disk.recorded_tensors import Value, read_interface
from conformance.process.errors import UserError

RTOL, ATOL = 1e-3, 1e-7
"""What ``onnx.backend.test`` allows: https://github.com/onnx/onnx/blob/main/onnx/backend/test/loader/__init__.py"""
FEW = 16
"""Numbers of an input of at most one dim up to which they may be sizes, axes or settings, and stay as recorded."""


class Recorded(Says):
    """Name recorded data: inputs that somebody ran the file with, and the outputs that they got."""

    data: Annotated[Listed[FilesBeside], Field(min_length=1)]
    """Files and folders beside the case file: ``test_data_set_0`` as ONNX lays it out, ``.npz`` by the names of
    inputs and outputs, or JSON that ``polygraphy run --save-inputs`` and ``--save-outputs`` wrote."""
    rtol: float = Field(RTOL, ge=0, allow_inf_nan=False)
    atol: float = Field(ATOL, ge=0, allow_inf_nan=False)
    """How far floats may be from the recorded ones; whole numbers, bools and texts are exact."""
    only: bool = False
    """Draw nothing: recorded data alone runs. So it is where no input can be drawn, as for sequences."""


def spell_out(value: object) -> object:
    """Return ``recorded: FILE`` and a list of these as the mapping that they stand for."""
    return {"data": value} if isinstance(value, (str, list)) else value


def read_around(said: object, model: Path) -> tuple[RecordedData, list[Path]]:
    """Return the recorded data that a case names, and its files. Raises UserError for what cannot be used."""
    told = spell_out(said)
    named = told.get("data") if isinstance(told, Mapping) else None
    names = [name for name in (named if isinstance(named, list) else [named]) if isinstance(name, str)]
    places = [model.parent / name for name in names]
    data = read_recorded(places, read_interface(model))
    if data.left_out:
        raise UserError(data.left_out[0])
    return data, [file for place in places for file in files_of(place)]


def values_around(arrays: Sequence[Value]) -> dict[str, object] | None:
    """Return the ``values`` of an input whose draws go around recorded ones: a range, the very values where these may
    be sizes or axes, or None where nothing is known."""
    known: list[Array] = [one for one in arrays if isinstance(one, np.ndarray)]
    if known and known[0].dtype == object:  # of ONNX, texts
        words = {str(word): None for one in known for word in one.reshape(-1)}
        return {"texts": list(words)[:ENTRIES]} if len(words) > 1 else None
    if not known or known[0].dtype.kind not in "iuf":
        return None
    if all(one.ndim <= 1 and one.size <= FEW for one in known):
        return {"recorded": True}
    whole = known[0].dtype.kind in "iu"
    every = np.concatenate([one.reshape(-1) for one in known]).astype(object if whole else np.float64)
    finite = every if whole else every[np.isfinite(every)]
    if not finite.size:
        return None
    low, high = finite.min(), finite.max()
    if low == high:
        return {"recorded": True}
    return {"integers" if whole else "uniform": {"low": low if whole else float(low), "high": high}}


def sizes_in(inputs: Mapping[str, object], arrays: Mapping[str, Value]) -> dict[str, int]:
    """Return the sizes that the dims in the types of inputs have in recorded arrays."""
    sizes: dict[str, int] = {}
    for name, entry in inputs.items():
        array = arrays.get(name)
        text = str(entry.get("type", "") if isinstance(entry, Mapping) else entry)
        words = [word.strip() for word in text.partition("[")[2].rstrip("] ").split(",")]
        if isinstance(array, np.ndarray) and len(words) == array.ndim:
            sizes |= {
                word: size
                for word, size in zip(words, array.shape, strict=True)
                if re.fullmatch(r"[A-Za-z_]\w*", word)
            }
    return sizes
