"""Each plant as a cell of the suite runs it, and what its record names."""

from __future__ import annotations

import functools
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.plants.location.exports import Plant, plants, record_of


@dataclass(frozen=True)
class Outcome:
    """What became of a plant."""

    plant: Plant
    failed: bool
    fault: str | None
    told: Mapping[str, Any]
    seconds: float
    """That looking for the operator has taken."""

    @property
    def operator(self) -> bool:
        return self.told.get("operator") in self.plant.operators

    @property
    def line(self) -> bool:
        return self.told.get("line") == f"beside.py:{self.plant.line}"

    @property
    def named(self) -> str:
        if self.told.get("unable"):
            return f"nothing ({self.told['unable']} {self.told.get('detail', '')})".replace(" )", ")")
        return f"{self.told.get('operator')} at {self.told.get('line')}, node {self.told.get('type')}"


@functools.cache
def study(quick: bool) -> list[Outcome]:
    chosen = list(plants())[:: 8 if quick else 1]
    with tempfile.TemporaryDirectory() as name:
        return [_outcome(plant, Path(name) / str(number), quick) for number, plant in enumerate(chosen)]


def _outcome(plant: Plant, folder: Path, quick: bool) -> Outcome:
    if not quick:
        print(plant.name, file=sys.stderr, flush=True)
    record = record_of(plant, folder)
    return Outcome(
        plant, record.status == "failed", record.fault, record.operator or {}, record.seconds.get("locate", 0.0)
    )
