"""The faults: wrong kernels of ``tests.plants.culprits`` in the midst of a longer module, and real ones.

Real ones are what the shipped cases declare of ONNX Runtime, without the declaration.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

from conformance.case.plan.cell import Cell
from tests.plants.culprits import kernels
from tests.plants.plant import Plant, Written

SHIPPED = Path(__file__).parents[2] / "cases"
AFTER = "y + torch.atan(y.abs()) * 0.3 - torch.atan(y * 0.5) * 0.2 + torch.exp(-y.abs())"
"""Ten nodes behind the output of a case, which its wrong kernel is none of."""
LONGER = f"""

class Longer({{name}}):
    def forward(self, *arguments):
        y = super().forward(*arguments)
        return {AFTER}
"""


def plants() -> Iterator[Plant]:
    """Wrong kernels that give other values."""
    tried = {name for name, *_ in (*kernels.KERNELS, *kernels.SPECIAL)}
    for plant in kernels.plants():
        if plant.name in tried:
            yield dataclasses.replace(plant, case=_longer(plant.case))


def _longer(case: Written) -> Written:
    """The case with more nodes behind its output, unless that has integers or is only right as it is."""
    head, _, rest = case.body.partition("\n")
    if "int64" in case.body or "argmax" in head:
        return case
    if head.startswith("module: beside."):
        name = head.rpartition(".")[2]
        return Written(f"module: beside.Longer\n{rest}", case.python + LONGER.format(name=name))
    (forward,) = re.findall(r'^forward: "(.*)"$', head)
    return Written(f'forward: "(lambda y: {AFTER})({forward})"\n{rest}', case.python)


def declared() -> Iterator[Cell]:
    """The cells of ONNX Runtime at fp32 in which a shipped case declares a wrong runtime, one of each declaration;
    with a case that declares nothing."""
    from conformance.case.files.case_file import case_files, load
    from conformance.case.plan import expected
    from conformance.case.plan.catalogue import plan
    from conformance.extras.repairs.trials import changed

    seen = set()
    for case in (case for file in case_files([SHIPPED]) for case in load(file)):
        for cell in plan(case):
            if cell.runtime != "onnxruntime" or cell.converted or cell.check not in ("accuracy", "specials"):
                continue
            entries = [
                entry for entry in expected.declared(cell) if entry.fault == "runtime" and entry.when.cpu is None
            ]
            keys = {(case.file, case.line_of(entry)) for entry in entries}
            if keys - seen:
                seen |= keys
                yield dataclasses.replace(cell, case=changed(case))
