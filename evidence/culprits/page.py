"""What is printed, and ``docs/evidence/culprits.md``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from benchmarks.common import ROOT, Row, table
from evidence.counts import none, share
from evidence.culprits import score
from evidence.culprits.run import Outcome, study
from tests.plants.plant import CULPRITS

PAGE = ROOT / "docs" / "evidence" / "culprits.md"
RIGHT = 0.97


def rows(quick: bool) -> Iterator[Row]:
    return rows_of(study(quick))


def rows_of(outcomes: Sequence[Outcome]) -> Iterator[Row]:
    """One row for each culprit and for all, then those with targets."""
    counted = [outcome for outcome in outcomes if outcome.counts]
    for culprit, these in _by_culprit(counted):
        yield Row(culprit, f"{_of(these, 'right')} named rightly", _others(these), repeats=len(these))
    yield share("named rightly", _of(counted, "right"), len(counted), RIGHT)
    yield from _of_wrong(outcomes, counted)


def _of_wrong(outcomes: Sequence[Outcome], counted: Sequence[Outcome]) -> Iterator[Row]:
    wrong = _of(counted, "wrong", "not found")
    yield none("named wrongly or not found", wrong, f"{_of(counted, 'open')} open", len(counted))
    why = "not planted, or the sound form does not pass"
    yield none("plants that prove nothing", len(outcomes) - len(counted), why, len(outcomes))


def _by_culprit(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, list[Outcome]]]:
    for culprit in CULPRITS:
        yield culprit, [outcome for outcome in outcomes if outcome.culprit == culprit]
    yield "all", list(outcomes)


def _of(outcomes: Sequence[Outcome], *verdicts: str) -> int:
    return sum(outcome.verdict in verdicts for outcome in outcomes)


def _lines(
    groups: Iterable[tuple[str, list[Outcome]]], more: Callable[[list[Outcome]], str] = lambda these: ""
) -> Iterator[str]:
    """Yield the lines of a table with the count of each verdict; ``more`` is behind them."""
    for name, these in groups:
        counts = (str(_of(these, verdict)) for verdict in ("right", "wrong", "not found", "open"))
        yield f"| {name} | {len(these)} | {' | '.join(counts)} |{more(these)}"


def _others(outcomes: Sequence[Outcome]) -> str:
    return ", ".join(f"{_of(outcomes, verdict)} {verdict}" for verdict in ("wrong", "not found", "open"))


TEXT = """# Who is named for a defect

Made by `tox run -e dev -- python -m evidence culprits`. {count} defects are planted whose culprit is known, one at
a time, in small cases that pass without them: in what an exporter gives, in ONNX Runtime's optimizer, in its kernels
(with the optimizer on and off alike), in what a conversion gives, in PyTorch's own float32 kernels, in the case, and
in the host. Each runs as a cell of the suite does, and its record is read.

| culprit | plants | right | wrong | not found | open |
|---|---|---|---|---|---|
{table}

| what | measured | compared with | ratio | plants | target | |
|---|---|---|---|---|---|---|
{targets}

A defect that no cell fails for is *not found* and counts as wrong. The rules were written before any result was
looked at; they are code, `evidence/culprits/score.py`:

{rules}

The plants were not all written before a first run. That run showed some to be no defects, and these were replaced:
outputs that stay the same bit for bit, a size that the module could do after all, a constant that the model does not
have, a sound form that fails by itself. Three int8 plants cost less than the default limit allows, and are now in a
case that asks for more. One was taken out because two are at fault: a module that is random, by an operator that the
exporter does not have; the exporter was named. Others were added then: most where the evaluator abstains, the
converted models of the optimizer, the real ones, the symbolic that raises, and the 8-bit kernel.

## Not named rightly

{listed}

## Plants that prove nothing

{void}

{where}
{own_code}"""
OWN_CODE = "\n## Code of the case's own\n"
"""The heading of the section that is measured and written alone, and stays as it is where the rest is written."""
SECTION = """
Made by `tox run -e dev -- python -m evidence doors`, apart from the rest of this page. Of {count} defects most are
planted in what a case itself brings for an export, by {doors} doors; the same code without the defect passes. The
last of each door is an exporter that is wrong at another operator, beside right code by that door, which may not be
named. The *place* is the first file and line that the record names, within the function or the branch that is wrong.

A first run did not name translations of an overload (`aten::sub.Tensor`), which was mended, and showed plants that no
exporter takes in their sound form: operators that have a decomposition in place of a translation, and `torch.sinc`
for TorchScript. These were replaced.

| door | plants | right | wrong | not found | open | right place |
|---|---|---|---|---|---|---|
{table}

{targets}

### Not named rightly, or at another place

{listed}

### Plants that prove nothing

{void}

{where}
"""


def write(where: str) -> None:
    """Write ``docs/evidence/culprits.md``; ``where`` says on what host and with which versions."""
    outcomes = study(False)
    counted = [outcome for outcome in outcomes if outcome.counts]
    lines = _lines(_by_culprit(counted))
    targets = [row.line() for row in rows_of(outcomes) if row.target]
    rules = (score.__doc__ or "").partition("\n\n")[2].partition("\n\n")[2].strip().replace("``", "`")
    listed = [_line(outcome) for outcome in counted if outcome.verdict != "right"]
    void = [_void(outcome) for outcome in outcomes if not outcome.counts]
    PAGE.write_text(
        TEXT.format(
            count=len(counted), table="\n".join(lines), targets="\n".join(targets), rules=rules,
            listed="\n".join(listed) or "None.", void="\n".join(void) or "None.", where=where, own_code=_parts()[1],
        ),
        encoding="utf-8",
    )  # fmt: skip


def rows_of_own_code(outcomes: Sequence[Outcome]) -> Iterator[Row]:
    """The rows with targets of code of the case's own."""
    counted = [outcome for outcome in outcomes if outcome.counts]
    named = [outcome for outcome in counted if outcome.placed is not None]
    right = sum(outcome.verdict == "right" and outcome.placed is True for outcome in named)
    yield share("named rightly, at its place", right, len(named), RIGHT)
    yield from _of_wrong(outcomes, counted)


def write_own_code(outcomes: Sequence[Outcome], where: str) -> None:
    """Writes the section of code of the case's own, and leaves the rest of the page as it is."""
    counted = [outcome for outcome in outcomes if outcome.counts]
    by_door: dict[str, list[Outcome]] = {}
    for outcome in counted:
        by_door.setdefault(outcome.name.partition(":")[0], []).append(outcome)
    lines = _lines([*by_door.items(), ("all", counted)], lambda these: f" {_placed(these)} |")
    odd = [outcome for outcome in counted if outcome.verdict != "right" or outcome.placed is False]
    void = [_void(outcome) for outcome in outcomes if not outcome.counts]
    section = SECTION.format(
        count=len(counted), doors=len(by_door), table="\n".join(lines),
        targets=table(rows_of_own_code(outcomes)),
        listed="\n".join(map(_line, odd)) or "None.", void="\n".join(void) or "None.", where=where,
    )  # fmt: skip
    PAGE.write_text(f"{_parts()[0]}{OWN_CODE}{section}", encoding="utf-8")


def _placed(outcomes: Sequence[Outcome]) -> str:
    asked = [outcome for outcome in outcomes if outcome.placed is not None]
    return f"{sum(outcome.placed is True for outcome in asked)} of {len(asked)}"


def _parts() -> tuple[str, str]:
    """The page without the section of code of the case's own, and that section."""
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    rest, head, section = page.partition(OWN_CODE)
    return rest, head + section


def _line(outcome: Outcome) -> str:
    reason = " ".join(str(outcome.record["reason"] or "").split())
    witnesses = ", ".join(
        f"{witness['runtime']} {witness['answer']}" for witness in outcome.record["witnesses"] or ()
    )
    asked = f" Asked: {witnesses}." if witnesses else ""
    told = f' "{reason[:160]}".' if reason else ""
    return f"- {outcome.verdict}: {outcome.culprit}, {outcome.name}. Named: {outcome.said}.{told}{asked}"


def _void(outcome: Outcome) -> str:
    why = f"the sound form does not pass: {outcome.sound[:200]}" if outcome.sound else "the defect was not met"
    return f"- {outcome.culprit}, {outcome.name}: {why}"
