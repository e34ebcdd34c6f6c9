"""One example: its inputs, what is right for them, and what judging it takes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from conformance.arrays import Array
from conformance.records.processor import is_of_kind


@dataclass(frozen=True)
class DataSet:
    """One example: arrays in graph order."""

    inputs: dict[str, Array]
    wanted: list[Array]
    exact: list[Array] | None
    conditioning: list[float] | None
    draw: dict[str, Any]
    """dims, regime, seed and index; ``apart`` names the runtimes that are declared to fail there."""

    def fails_in(self, runtime: str, instructions: Collection[str]) -> bool:
        """Whether it is declared to fail in a runtime on a host whose processor has these instruction sets."""
        for one in self.draw["apart"]:
            named, kind = (one, None) if isinstance(one, str) else (one["runtime"], one["cpu"])
            if named == runtime and is_of_kind(kind or {}, instructions):
                return True
        return False
