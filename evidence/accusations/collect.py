"""Case files of all samples, in a folder: the files of their modules and the Python that loads them beside."""

from __future__ import annotations

import argparse
import fnmatch
import json
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from evidence.accusations import beside, module_info, open_values, usual, vision
from evidence.accusations.run import INDEX
from evidence.accusations.samples import Named, Unfit, case_of

PER_FILE = 40
"""Cases of a file."""


def samples(group: str) -> Iterator[Named]:
    for source in {"usual": (usual, vision, module_info), "open": (open_values,)}[group]:
        yield from source.samples()


def collect(folder: Path, group: str, only: str = "*", every: int = 1) -> None:
    """Write cases of a group's samples that match ``only``, of these each so-many-th, and the index at last."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(beside.__file__, folder / "modules.py")
    cases: dict[str, dict[str, Any]] = {}
    unfit: dict[str, str] = {}
    matching = ((name, make) for name, make in samples(group) if fnmatch.fnmatchcase(name, only))
    for number, (name, make) in enumerate(matching):
        if number % every:
            continue
        assert name not in cases, name
        torch.manual_seed(0)
        sample = make()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                case = case_of(sample)
            except Unfit as error:
                unfit[name] = str(error)
                continue
        torch.save(sample.module, folder / f"{name}.pt")
        case["with"] = {"file": f"{name}.pt", **case.get("with", {})}
        cases[name] = case
    names = list(cases)
    for start in range(0, len(names), PER_FILE):
        text = "".join(_text(name, cases[name]) for name in names[start : start + PER_FILE])
        file = folder / f"part{start // PER_FILE:02}.yaml"
        file.write_text(f"defaults: {{module: modules.build}}\n{text}", encoding="utf-8")
    index = {"cases": {name: cases[name]["about"] for name in names}, "unfit": unfit}
    (folder / INDEX).write_text(json.dumps(index, indent=1), encoding="utf-8")


def _text(name: str, case: dict[str, Any]) -> str:
    inputs = ""
    for input_name, declared in case["inputs"].items():
        said = "".join(f", {key}: {declared[key]}" for key in ("values", "as") if key in declared)
        inputs += f"    {input_name}: {{type: {json.dumps(declared['type'])}{said}}}\n"
    said = "".join(
        f"  {key}: {json.dumps(case[key])}\n"
        for key in ("about", "with", "dims", "specials", "examples")
        if key in case
    )
    return f"{name}:\n{said}  inputs:\n{inputs}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("group")
    parser.add_argument("--only", default="*")
    parser.add_argument("--every", type=int, default=1)
    given = parser.parse_args()
    collect(given.folder, given.group, given.only, given.every)
