"""The section of the page about files of converters."""

from __future__ import annotations

import datetime
from collections import Counter

from benchmarks.common import table
from evidence.accusations.converted.study import RESULTS, WAYS, File, Study, rows

TITLE = "As converters leave them"
ABOUT = """Small seeded networks (`evidence/accusations/converted/networks.py`), made smaller by converters with their
usual arguments (`convert.py` beside it). `conformance check` gets each file alone, and beside its original, in ONNX
Runtime and OpenVINO. Converters that are not in the development environment are installed in one of their own. A red
is an accusation, but for two kinds: a documented setting of ONNX Runtime is named with its decibels
(`session.qdq_matmulnbits_accuracy_level`, by which four-bit products are computed in 8 bits), or the file itself
loses more than is allowed of what its original computes."""


def section_of(seen: Study, where: str) -> str:
    """Return the section of a run, without its title."""
    converters = list(dict.fromkeys(one.converter for one in seen.files))
    lines = [_line(name, [one for one in seen.files if one.converter == name]) for name in converters]
    reds = [f"- `{one.path.stem}`, {said}" for one in seen.files for said in one.said]
    refused = [f"- {text}" for text in seen.refused]
    day = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    parts = [
        ABOUT,
        table([*rows(seen)]),
        "\n".join(
            ["| converter | networks | alone | beside its original | SQNR, dB |", "|---|---|---|---|---|", *lines]
        ),
        "\n".join(["Reds:", "", *(reds or ["None."])]),
        "\n".join(["Not taken by the converter:", "", *(refused or ["None."])]),
        f"Measured on {day}: {where} Converters: {'; '.join(seen.versions)}.",
    ]
    return "\n\n".join(parts) + "\n\n"


def _line(name: str, files: list[File]) -> str:
    told = []
    for way in WAYS:
        counts = Counter(one.results[way] for one in files)
        told.append(", ".join(f"{counts[result]} {result}" for result in RESULTS if counts[result]))
    decibels = [one.decibels for one in files if one.decibels is not None]
    ends = f"{min(decibels):.1f} to {max(decibels):.1f}" if decibels else ""
    return f"| {name} | {', '.join(one.network for one in files)} | {' | '.join(told)} | {ends} |"
