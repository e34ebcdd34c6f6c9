"""What the shipped catalogue does under other versions of ONNX Runtime, of ONNX's evaluator and of torch."""

from __future__ import annotations

import functools
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.common import ROOT, Row, run_python, seconds_of, table
from conformance.results.records.run_file import read_run

PAGE = ROOT / "docs" / "evidence" / "runtime-versions.md"
FOLDERS = ("graph", "registration")
EXAMPLES = 4
VERSIONS = {
    "onnxruntime": ("1.23.*", "1.25.*", "1.27.*", "1.30.*", "latest"),
    "onnx-reference": ("1.20.*", "1.21.*", "1.22.*", "latest"),
    "torch": ("2.14.*", "2.15.*"),
}
LEAST = {"onnxruntime": 4, "onnx-reference": 3, "torch": 2}
"""How many releases of each are due."""


@dataclass
class Seen:
    """Runs of the same cells, by the name of the version."""

    runs: dict[str, dict[str, dict[str, object]]] = field(default_factory=dict)
    """Records by cell."""
    seconds: float = 0.0
    """That all replays took, with the environments made."""

    def counts(self, version: str) -> Counter[str]:
        return Counter(str(record["status"]) for record in self.runs[version].values())

    def different(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Cells that are not the same in all versions, with what each makes of them."""
        for cell in next(iter(self.runs.values())):
            said = {version: _said(records.get(cell)) for version, records in self.runs.items()}
            if len(set(said.values())) > 1:
                yield cell, said


def _said(record: dict[str, object] | None) -> str:
    return "absent" if record is None else " ".join(filter(None, (str(record["status"]), str(record["error"] or ""))))


@functools.cache
def study(runtime: str, quick: bool) -> Seen:
    """Packs the cells of a runtime in fp32 and replays them under each version; those of torch run the suite."""
    seen = Seen()
    wanted = ",".join(VERSIONS[runtime][-2:] if quick else VERSIONS[runtime])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        places = [word for part in FOLDERS for word in ("--cases", str(ROOT / "cases" / part))]
        cells = [*places, "--precision", "fp32", "--examples", str(EXAMPLES), *(["-k", "celu"] if quick else [])]
        if runtime == "torch":
            versions = ["versions", "--exporter", f"torch=={wanted}", "-n", "2", *cells]
        else:
            run_python(
                folder, "-m", "conformance", "pack", "bundle", "--runtime", "onnxruntime", *cells, allowed=(0, 1)
            )
            versions = ["versions", "bundle", "--runtime", f"{runtime}=={wanted}"]
        seen.seconds = seconds_of(lambda: run_python(folder, "-m", "conformance", *versions, allowed=(0, 1)))
        for place in filter(Path.is_dir, (folder / "reports" / "versions").iterdir()):
            seen.runs[place.name] = {record.id: record.as_dict() for record in read_run(place)[1]}
    seen.runs = dict(sorted(seen.runs.items(), key=lambda item: _order(item[0])))
    return seen


def _order(name: str) -> list[int]:
    return [int(number) for number in re.findall(r"[0-9]+", name)]


def rows(quick: bool) -> Iterator[Row]:
    for runtime, least in LEAST.items():
        if quick and runtime == "torch":
            continue  # an environment of 5 GB is not quick
        seen = study(runtime, quick)
        cells = len(next(iter(seen.runs.values())))
        differ = sum(1 for _ in seen.different())
        yield Row(
            f"versions of {runtime}", str(len(seen.runs)), f"{cells} cells each, {seen.seconds:.0f} s for all",
            target=f"at least {least}", met=len(seen.runs) >= least,
        )  # fmt: skip
        yield Row("cells that are not the same in all of them", str(differ), repeats=len(seen.runs))


TEXT = """# The catalogue under other versions

Made by `tox run -e dev -- python -m evidence versions`. The fp32 models of `cases/graph` and `cases/registration`,
exported by this torch, {examples} examples each, are packed and [replayed](../runtimes.md#versions) in an
environment without torch for each version. A model may use what an earlier version does not know: then that version
cannot load it. For releases of torch the suite is run on these cases, in an environment each.

{targets}

{tables}

{where}
"""


def write(where: str) -> None:
    """Writes ``docs/evidence/runtime-versions.md``; ``where`` says on what host and with which versions."""
    targets = table(rows(False))
    tables = "\n\n".join(_tables(runtime) for runtime in VERSIONS)
    PAGE.write_text(TEXT.format(examples=EXAMPLES, targets=targets, tables=tables, where=where), encoding="utf-8")


def _tables(runtime: str) -> str:
    seen = study(runtime, False)
    counted = [
        f"| {version} | {seen.counts(version)['passed']} | {seen.counts(version)['xfailed']} "
        f"| {seen.counts(version)['failed']} | {seen.counts(version)['xpassed']} |"
        for version in seen.runs
    ]
    lines = [f"## {runtime}", "", "| | passed | failed as declared | failed | passed though declared to fail |",
             "|---|---|---|---|---|", *counted, ""]  # fmt: skip
    different = list(seen.different())
    if not different:
        return "\n".join([*lines, "Every cell is the same in all of them."])
    lines += [f"| not the same in all | {' | '.join(seen.runs)} |", "|---|" + "---|" * len(seen.runs)]
    lines += [f"| {cell} | {' | '.join(said.values())} |" for cell, said in different]
    return "\n".join(lines)
