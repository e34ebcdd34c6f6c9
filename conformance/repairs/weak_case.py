"""The edit of a case that proves too little: other values, draws or weights, an excuse, or a tolerance that float32
itself needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ruamel.yaml import YAML

from conformance.case.declaration import Case, Declaration
from conformance.checks.case_edits import flow, plain, saying
from conformance.plan.catalogue import plan
from conformance.plan.cell import Cell
from conformance.repairs.trials import PROVING, Fix, Trials, beside, changed, proving

ROUNDS = 3
"""How often an edit is followed by the one that its own failure proposes, as for draws that are further off."""
WHAT = {
    "values": "draw other values", "draws": "draw more values", "weights": "give parameters that are all zero values",
    "tolerance": "compare by the default tolerance", "specials": "leave specials out",
    "tolerance to declare": "declare the tolerance that float32 itself needs here",
    "excuse": "say why the output is right though any would pass", "awake": "wake the weights",
}  # fmt: skip
_LOOSER = "tolerance to declare"
_AWAKE = {"kind": "awake", "yaml": "weights: awake"}


def proposed(record: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The edit that a record proposes, or that may help where a module hardly shows; None where there is none to be
    tried."""
    remedy = _AWAKE if record.get("error") == "Hollow" else record.get("remedy")
    return remedy if remedy and remedy.get("yaml") else None


def fixes(case: Case, record: Mapping[str, Any], trials: Trials) -> Iterator[Fix]:
    """The edit of a case at fault with which all cells pass that have to."""
    own, remedy = record, proposed(record)
    for _ in range(ROUNDS):
        if remedy is None or (remedy["kind"] == _LOOSER and not _float32_is_off(case, own, trials)):
            return
        says = _parts(case, str(remedy["yaml"]))
        file, python = str(remedy.get("file")), remedy.get("python")
        files = {}
        if python:
            before = case.folder / file
            files[file] = (before.read_text(encoding="utf-8") if before.exists() else "") + f"\n\n{python}"
        with beside(case, files) as moved:
            other = saying(moved, **says)
            strict = proving(changed(other), record, record["exporter"], record["opset"])
            shown = trials.shown(strict)
            rest = [
                cell for cell in plan(other) if cell.check in PROVING and cell.id not in {own.id for own in strict}
            ]
            if shown is not None and trials.unharmed(rest):
                merged = f"tolerance: {flow(plain(says['tolerance']))}" if "tolerance" in says else None
                paste = [merged or str(remedy["yaml"])]
                paste += [f"in {file}:", *(f"  {line}" for line in python.splitlines())] if python else []
                yield Fix(WHAT.get(remedy["kind"], remedy["kind"]), "\n".join(paste), shown)
                return
            again = next((cell for cell in strict if cell.id == record["id"]), None)
            own = trials.record(again) if again is not None and remedy["kind"] == _LOOSER else {}
        remedy = proposed(own)


def _float32_is_off(case: Case, record: Mapping[str, Any], trials: Trials) -> bool:
    """Return whether nobody computes what PyTorch does, and no cell of the case shows a runtime or an exporter to be
    wrong: a looser tolerance would hide that."""
    answers = {witness["answer"] for witness in record.get("witnesses") or ()}
    if record.get("conclusion") == "apart" or answers & {"agrees", "nearer"}:
        return False

    def sound(cell: Cell) -> bool:
        told = trials.record(cell)
        return told["status"] != "failed" or told.get("fault") == "case"

    return all(sound(cell) for cell in plan(case) if cell.check in ("accuracy", "specials") and not cell.converted)


def _parts(case: Case, text: str) -> dict[str, Any]:
    """Return what the edit has a case say, by key; a tolerance beside those of other precisions."""
    said = YAML(typ="safe").load(text)
    read = Declaration.model_validate({"about": "an edit", "inputs": {"x": "float32[1]"}, **said})
    parts = {key: getattr(read, key) for key in said}
    if "tolerance" in parts:
        parts["tolerance"] = {**case.says.tolerance, **parts["tolerance"]}
    return parts
