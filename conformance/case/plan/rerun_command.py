"""The command that runs one cell alone, as records tell it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from conformance.results.records.sanitize import command_line


def command(cell_id: str, folder: Path, cases: Sequence[str | Path], options: Mapping[str, object]) -> str:
    """Write the command that runs the cell from ``folder``.

    With these paths of cases, and those of ``options`` that are not None.
    """
    words = ["pytest", "conformance"] if (folder / "conformance").is_dir() else ["conformance", "run"]
    for path in cases:
        words += ["--cases", str(path)]
    for name, value in options.items():
        if value is not None:
            words += [f"--{name}", str(value)]
    return command_line([*words, "-k", cell_id])
