"""What is printed, and ``docs/evidence/mutants.md``."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from benchmarks.common import ROOT, Row
from conformance.extras.mutants.kinds import KINDS
from conformance.extras.mutants.probe import INDEPENDENT
from evidence.counts import none, share
from evidence.mutants.run import EACH, SMALLEST, VARIANTS, Mutant, Study, study
from evidence.mutants.tools import TOOLS

PAGE = ROOT / "docs" / "evidence" / "mutants.md"
NEAR = 0.95
"""The share of the mutants that are found of which the changed node, or one next to it, is to be named."""


def rows(quick: bool) -> Iterator[Row]:
    yield from rows_of(study(quick))
    yield from rows_of_nodes(study(quick))


def rows_of(found: Study) -> Iterator[Row]:
    for kind, these in _by_kind(found.defects):
        others = ", ".join(f"{tool} {_of(these, tool)}" for tool in TOOLS)
        yield Row(kind, _of(these), others, repeats=len(these))
    what = "defects that its own comparison would refuse, and its draws do not show"
    yield none(what, len(found.missed), of=len(found.defects))


def rows_of_nodes(found: Study) -> Iterator[Row]:
    """Where the records say that the models are wrong, and what looking for it took."""
    caught = [(one, one.record) for one in found.defects if one.record is not None]
    places = Counter(one.named.place for one, _ in caught)
    right = sum(one.named.right for one, _ in caught)
    others = f"; another node {places['among'] + places['elsewhere']}, none {places['open']}"
    yield share("the changed node is named, or one next to it", right, len(caught), NEAR, others)
    told = [one.named.told for one, _ in caught if one.named.place != "open"]
    if told:
        known = right + places["among"]
        yield Row(
            "or it is among those that the record says may be wrong too", f"{known / len(caught):.1%}",
            f"{known} of {len(caught)}; "
            f"{statistics.median(told):g} nodes are told in the median, at most {max(told)}",
            repeats=len(caught),
        )  # fmt: skip
    seconds = [record.seconds["locate"] for _, record in caught if "locate" in record.seconds]
    if seconds:
        yield Row(
            "seconds added to a failing cell", f"median {statistics.median(seconds):.2f} s",
            f"worst {max(seconds):.2f} s", repeats=len(seconds),
        )  # fmt: skip


def _by_kind(mutants: Sequence[Mutant]) -> Iterator[tuple[str, list[Mutant]]]:
    for kind in KINDS:
        yield kind, [one for one in mutants if one.made.kind == kind]
    yield "all", list(mutants)


def _of(mutants: Sequence[Mutant], tool: str | None = None) -> str:
    """``3 of 4``: found by the suite, or by a tool of those that it was asked about."""
    verdicts = [
        one.found if tool is None else one.tools[tool] for one in mutants if tool is None or tool in one.tools
    ]
    return f"{sum(verdicts)} of {len(verdicts)}"


TEXT = """# Mutants

Made by `tox run -e dev -- python -m evidence mutants`. Each mutant is an exported model of the shipped catalogue
with one small defect, of the kinds that a wrong symbolic, exporter or optimizer makes. It passes `onnx.checker` and
ONNX Runtime loads it. The question is who notices.

| defect | | this suite | {heads} |
|---|---|---|{rules}|
{table}

{models} models: the fp32 cells on ONNX Runtime that pass, of both exporters at the highest opset of each case. This
is a sample: at most {variants} variants of a case, drawn by a fixed seed, and of the whole networks `{smallest}`
alone, since a cell of the others runs for ten seconds and more. Up to {each} mutants of each model, the kinds in
turn, drawn by a seed of the cell.

A change is a defect if a legal input tells the mutant from the sound model: the input of the export, {independent}
inputs drawn by other means than the suite's ({few} for models above 1 MiB), or any that the suite draws. {equal} of
{all} changes were not shown to differ; they are listed at the end and count nowhere else. Polygraphy refuses
{outside} of them, on inputs that their cases exclude.

- **This suite**: the cells `accuracy` and, where the case has it, `specials`, as a run has them.
- **Polygraphy**: `Comparator.run` with its own `DataLoader` (floats from 0 to 1, integers 0 and 1, symbolic dims 1;
  the shapes of the trace where the module does not take that), then `compare_accuracy` with its 1e-5 and 1e-5.
- **assert_onnx_program**: of dynamo models, with its default tolerances on the inputs of the export. The program is
  made of the mutant and of `torch.export` of the module.
- **assert_allclose**: the input of the export once, `rtol=1e-3, atol=1e-5`, as PyTorch's tutorial ends.

A tool is asked about mutants of those models that it accepts as they are, so the numbers after "of" differ; in
parentheses is what this suite finds of the same ones.

## Sound models

| | asked about | accused | no answer |
|---|---|---|---|
{sound}

This suite cannot accuse any of these: they were chosen by its cells passing. What it does with sound models is in
[how outputs are compared](../comparison.md).

{accused}

## Who is blamed

A mutant is what a wrong exporter would give, so the exporter is to be named. Of the {found} that the suite found:
{blame}.

It is left open where ONNX's evaluator abstains or stops, and where it runs a model that ONNX Runtime refuses. The
runtime is named where the evaluator gives PyTorch's outputs for a mutant: it sorts and interpolates in its own way.

{blamed}

## Which node is named

| what | measured | compared with | ratio | mutants | target | |
|---|---|---|---|---|---|---|
{nodes}

A node is next to the changed one if it reads from it or the other way round. Of a constant, those that read it are
the changed ones. Of the nodes that one operator of PyTorch becomes, only the last has a value of PyTorch's to be held
against; the record tells all of them back to what agrees, and names that of which a small change makes them right, on
the failing example and on others. Most kinds of defects that are planted here can be taken back by such a change, so
that other defects may be named less often. Where none is named it counts as not named. What exports again while a
mutant's cell runs gives the mutant; the exporter's own passes, of which none is at fault, are not looked through. Not
named rightly:

{elsewhere}

## Survivors

{survivors} of {defects} defects were not found.

Drawn too little: {missed}. The suite's own comparison refuses these on some of the independent inputs, so they are
weak spots of what it draws.

{missed_list}

Within what is allowed: {within}. They differ, but on none of the independent inputs by more than the comparison
allows of a sound model.

{within_list}

{why}

## Not shown to differ

{equal_list}

{where}
"""

WHY = """
Why they survive, as far as they were looked at:

- `top_of_more_unsorted` compares in any order, so whether TopK sorts is nothing that the case promises.
- `renorm` adds 1e-7 to a norm that is above 1 wherever the sum is used: subtracting it, or leaving it out, is within
  rounding.
- `half_pixel_symmetric` is `half_pixel` for a size that is given, but for the rounding of its scale.
- The bias in `mobilenet_v3_small` is so near to 0 that the outputs move by no more than rounding moves them. Whole
  networks are the weak spot: with the tolerance of 1e-4 that the case had at first, 7 of 49 defects in the weights of
  this model alone were not found, one percent in a small branch among them. It is 4e-5 now, not measured so.

Of those not shown to differ, most are equal by ONNX's own rules (an axis counted from the other end, a mode of Resize
that says nothing to another mode). Some are equal only in this catalogue: shrinking to a half takes the same pixels
however they are centred.
"""


def write(where: str) -> None:
    """Write ``docs/evidence/mutants.md``; ``where`` says on what host and with which versions."""
    found, lines = study(False), []
    for kind, these in _by_kind(found.defects):
        others = []
        for tool in TOOLS:
            same = [one for one in these if tool in one.tools]
            others.append(f"{_of(these, tool)} ({sum(one.found for one in same)})" if same else "")
        lines.append(f"| {kind} | {len(these)} | {_of(these)} | {' | '.join(others)} |")
    sound = [
        f"| {tool} | {found.asked[tool]} | {len(found.accused[tool])} | {len(found.unable[tool])} |" for tool in TOOLS
    ]
    caught = [one for one in found.defects if one.record is not None]
    blame = Counter(one.record.fault or "nobody, left open" for one in caught if one.record is not None)
    others = [one for one in caught if one.record is not None and one.record.fault not in ("exporter", None)]
    within, equal = found.tolerated, [one for one in found.mutants if not one.counts]
    PAGE.write_text(
        TEXT.format(
            models=len(found.models), variants=VARIANTS, smallest=SMALLEST, each=EACH, independent=INDEPENDENT,
            few=INDEPENDENT // 20, equal=len(equal), all=len(found.mutants),
            outside=sum(any(one.tools.values()) for one in equal),
            heads=" | ".join(TOOLS), rules="---|" * (len(TOOLS) - 1) + "---", table="\n".join(lines),
            sound="\n".join(sound), accused=_accused(found), found=len(caught),
            blame=", ".join(f"{name} {count}" for name, count in blame.most_common()),
            blamed=_listed(others, _blame), nodes="\n".join(row.line() for row in rows_of_nodes(found)),
            elsewhere=_listed([one for one in caught if not one.named.right], _node),
            survivors=len(found.survivors), defects=len(found.defects), missed=len(found.missed), within=len(within),
            missed_list=_listed(found.missed, _refusal), within_list=_listed(within, _margin), why=WHY.strip(),
            equal_list=_listed(equal, lambda one: ""), where=where,
        ),
        encoding="utf-8",
    )  # fmt: skip


def _listed(mutants: Sequence[Mutant], more: Callable[[Mutant], str]) -> str:
    lines = []
    for one in mutants:
        told = more(one)
        lines.append(f"- `{one.cell}`: {one.made.node}, {one.made.what}{f'. {told}' if told else ''}")
    return "\n".join(lines) or "None."


def _node(one: Mutant) -> str:
    return f"None is named: {one.named.node}" if one.named.place == "open" else f"Named: {one.named.node}"


def _blame(one: Mutant) -> str:
    assert one.record is not None
    return f"The {one.record.fault}, at {one.record.stage} with {one.record.error}"


def _refusal(one: Mutant) -> str:
    assert one.judged is not None
    inputs = "; ".join(f"{name} = {value}" for name, value in one.judged.inputs.items())
    return f"{one.judged.refused} of {one.judged.asked} inputs show it: {one.judged.example}, at {inputs}"


def _margin(one: Mutant) -> str:
    assert one.judged is not None
    unclear = f"; {one.judged.unclear} of {one.judged.asked} inputs are ill-conditioned" if one.judged.unclear else ""
    return f"At most {one.judged.largest:.2g} of what is allowed{unclear}"


def _accused(found: Study) -> str:
    lines = [
        f"- {tool} accuses {', '.join(f'`{label}`' for label in labels)}"
        for tool, labels in found.accused.items()
        if labels
    ]
    lines += [
        f"- {tool} has no answer about `{label}`: {why}"
        for tool, labels in found.unable.items()
        for label, why in labels.items()
    ]
    return "\n".join(lines) or "None is accused."
