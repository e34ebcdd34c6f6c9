"""Write what was measured of each operator as data, and the table of it that the package has."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, TypeAlias

from conformance.case.files.case_file import load
from conformance.case.files.declaration import Case
from conformance.case.files.python import Folder
from conformance.extras.support.called_operators import calls_of
from conformance.models.prepared import prepare
from conformance.process.errors import UserError, or_else
from conformance.results.records.operator_table import EXPORTERS, FORMAT, SEVERITY

Data: TypeAlias = dict[str, Any]
COPIES = re.compile(r"aten\.(clone|detach)\.default")
"""Calls that a case makes around its operator."""


def called_by_samples(files: Sequence[Path]) -> dict[tuple[str, int], list[str]]:
    """Return the operators that each sample of these case files calls; none where its run cannot be traced."""
    return {sample_of(case.name): or_else([], partial(_called, case)) for file in files for case in load(file)}


def sample_of(case: str) -> tuple[str, int]:
    """Return the operator and the number of the sample that a case is named after."""
    operator, _, sample = case.partition("-")[2].rpartition("-")
    return operator, int(sample)


def _called(case: Case) -> list[str]:
    """Return the operators that a case calls, as torch.export would, in a hundredth of the time."""
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    with Folder.of(case.folder).active() as folder, torch.no_grad():
        prepared = prepare(case, folder)
        module: Any = prepared.reference.module
        positional, named = prepared.reference.arguments(prepared.inputs())
        traced = make_fx(lambda *given: module(*given, **named), pre_dispatch=True)(*positional)
        names = [one.name for one in calls_of(traced)]
    return [name for name in names if not COPIES.match(name)] or names


def as_data(
    outcomes: Mapping[tuple[str, int], Data], calls: Mapping[tuple[str, int], Sequence[str]], header: Data
) -> Data:
    """Return all samples as data. ``outcomes`` are by operator and sample, and in each by exporter; ``header`` says
    when and with what they were measured.

    Raises UserError for an operator of which the installed PyTorch has no sample.
    """
    operators: dict[str, list[Data]] = defaultdict(list)
    known = {operator for operator, _ in calls}
    for operator, sample in sorted(outcomes):
        if operator not in known:
            raise UserError(f"the run has {operator}, of which the installed PyTorch has no sample: run it again")
        called = list(calls.get((operator, sample), ()))  # which of the samples are cases, PyTorch may draw
        operators[operator].append({"sample": sample, "calls": called, **outcomes[operator, sample]})
    return {**header, "operators": operators}


def header_of(run: Mapping[str, Any], opsets: Mapping[str, int]) -> Data:
    """Return when and with what a run measured, of its header."""
    versions = {name: version for name, version in run["environment"]["versions"].items() if version}
    return {"format": FORMAT, "when": str(run["started"])[:10], "versions": versions, "opsets": dict(opsets)}


def shipped(data: Data) -> Data:
    """Return the table of the package: by overload what came of the samples that call nothing else. Of a sample of
    another operator's it has only what no sample of its own shows."""
    by_call: dict[str, list[tuple[str, Data]]] = defaultdict(list)
    for operator, samples in data["operators"].items():
        for sample in samples:
            if len(sample["calls"]) == 1:
                by_call[sample["calls"][0]].append((operator, sample))
    table = {}
    for call, samples in sorted(by_call.items()):
        own = [one for one in samples if _is_of(*one[:1], call)] or samples
        table[call] = {name: worst for name in EXPORTERS if (worst := _worst(own, name)) is not None}
    head = {key: value for key, value in data.items() if key != "operators"}
    return {**head, "calls": {call: of for call, of in table.items() if of}}


def _is_of(operator: str, call: str) -> bool:
    """Return whether an operator is called by its own name: ``aten.linalg_norm.default`` by ``linalg.norm``."""
    name, words = call.split(".")[1], [*operator.split("."), ""]
    return any("_".join(words[first:end]) == name for first, end in combinations(range(len(words)), 2))


def _worst(samples: Sequence[tuple[str, Data]], exporter: str) -> Data | None:
    known = [(operator, sample[exporter]) for operator, sample in samples if exporter in sample]
    known = [one for one in known if one[1]["outcome"] in SEVERITY]
    if not known:
        return None
    operator, worst = min(known, key=lambda one: SEVERITY.index(one[1]["outcome"]))
    alike = sum(one["outcome"] == worst["outcome"] for _, one in known)
    by = {} if worst["outcome"] == "right" else {"operator": operator}
    return {**worst, "count": alike, "of": len(known), **by}


def lines_of(said: Data) -> str:
    """Return JSON in which each operator has a line, so that a change of one is a line of a diff."""
    *head, (last, entries) = said.items()
    inside = ",\n".join(f"{json.dumps(name)}: {json.dumps(entries[name])}" for name in sorted(entries))
    first = "".join(f"{json.dumps(key)}: {json.dumps(value)},\n" for key, value in head)
    return f"{{\n{first}{json.dumps(last)}: {{\n{inside}\n}}\n}}\n"
