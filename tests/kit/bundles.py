"""Bundles of a few cells: packed, copied, changed and replayed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper

from conformance.front import cli
from conformance.results.records.run_file import read_run
from tests.kit.cases import write_case


def pack(folder: Path, body: str, python: str = "", *arguments: str) -> tuple[int, Path]:
    """Pack a case, and others that lie in ``folder / "cases"`` already; the exit code and the bundle."""
    write_case(folder / "cases", body, python)
    place = folder / "bundle"
    cases, store = str(folder / "cases"), str(folder / "store")
    return cli.main(["pack", str(place), "--cases", cases, "--store", store, *arguments]), place


def replay(place: Path, *arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Replay a bundle; the exit code and the records by cell id."""
    report = place.parent / "replayed"
    code = cli.main(["replay", str(place), "--report", str(report), "--store", str(place.parent / "s"), *arguments])
    return code, {record.id: record.as_dict() for record in read_run(report)[1]}


def copy_cases(bundle: Path, folder: Path, *cases: str) -> Path:
    """A copy of a bundle in ``folder`` with the cells of these cases only."""
    place = folder / "bundle"
    place.mkdir()
    head = json.loads((bundle / "bundle.json").read_text())
    head["entries"] = [entry for entry in head["entries"] if entry["case"] in cases]
    (place / "bundle.json").write_text(json.dumps(head))
    for entry in head["entries"]:
        shutil.copytree(bundle / "cells" / entry["name"], place / "cells" / entry["name"])
    return place


def edit_entries(bundle: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change every entry of a bundle where it is described."""
    head = json.loads((bundle / "bundle.json").read_text())
    for entry in head["entries"]:
        change(entry)
    (bundle / "bundle.json").write_text(json.dumps(head))


def spoil(bundle: Path, name: str, change: Callable[[Any], Any]) -> None:
    """Change the array of that name in every data set of a bundle."""
    for file in (bundle / "cells").glob(f"*/test_data_set_*/{name}.pb"):
        array: np.ndarray[Any, Any] = numpy_helper.to_array(TensorProto.FromString(file.read_bytes()))
        file.write_bytes(numpy_helper.from_array(change(array.copy())).SerializeToString())
