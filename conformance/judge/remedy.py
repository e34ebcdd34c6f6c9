"""Advise what to try first where a cell proves nothing: an edit of the case that was tried on PyTorch alone."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from conformance.case.draw.draw import Draw, Maker
from conformance.case.files.copying import copied
from conformance.case.files.declaration import Case
from conformance.case.files.must_hold import PrecisionTolerance
from conformance.compare.excuses import ROUNDING, SLACK, largest_of, own_error
from conformance.compare.judges import Judge
from conformance.judge.case_edits import flow, plain, saying, values_of, widened, with_values
from conformance.judge.verify import Verifier
from conformance.process.arrays import Array, Inputs, equal
from conformance.process.errors import Stopped
from conformance.results.records.words import SPECIALS

DRAWS = 24
"""How many draws of a cell an edit is tried on at most."""
SECONDS = 10.0
"""How long edits are tried in all; for a slow module the rest is not tried, and an excuse is what is told."""
WORST_SHARE = 0.1
"""A proposed tolerance is at most this share of an output's largest value; where float32 is off by more, hardly a
digit of the output means anything, and other values are what helps."""

_FLOATS: tuple[dict[str, Any] | None, ...] = (
    None, {"uniform": {"low": -1, "high": 1}}, {"uniform": {"low": 0, "high": 1}},
    {"uniform": {"low": 0.1, "high": 10}}, {"uniform": {"low": 1, "high": 10}}, {"uniform": {"low": -10, "high": 10}},
    {"normal": {"std": 100}}, {"normal": {"std": 10000}}, {"normal": {"std": 1000000}}, {"normal": {"std": 1e+12}},
)  # fmt: skip
"""Values of float inputs that are tried, the plainest first; None is the default, a standard normal distribution."""

Remedy = dict[str, Any]
"""``kind`` (values, draws, weights, tolerance, specials, several kinds of excuse) and what to write: ``yaml`` into
the case, ``python`` into a ``file`` beside it."""


Answers = Iterator[tuple[Inputs, list[Array]]]
Attempts = Iterator[tuple[Remedy, Answers, Judge]]
"""Edits, each with what PyTorch gives with it, and what would decide on that."""


class Remedies:
    """Tries edits of one cell's case."""

    def __init__(self, verify: Verifier, draws: Sequence[Draw]) -> None:
        """``draws`` are those that the cell ran."""
        self._verify, self._case = verify, verify.cell.case
        self._draws = [draw for draw in draws if draw.index >= 0][:DRAWS]
        self._deadline = time.monotonic() + SECONDS
        self._facts: dict[int, dict[str, Any]] = {}

    # ---- vacuous outputs -------------------------------------------------------------------------------------

    def of_vacuous(self, output: int, vacuous: Collection[int]) -> Remedy:
        """Return what to try for an output, one of all that are ``vacuous``: the first edit with which it is so no
        more, or the excuse of them all."""

        def shows(answers: Answers, judge: Judge) -> bool:
            vacuity, seen = judge.vacuity(), 0
            try:
                for inputs, wanted in answers:
                    if not _mostly_finite(wanted[output]):
                        return False
                    vacuity.see(wanted, inputs)
                    seen += 1
            except (Stopped, IndexError):
                return False
            return seen > 1 and output not in vacuity.findings()

        judge = self._verify.judge
        assert judge is not None
        tries = (self._more_draws, self._tolerances, self._weights, self._other_values)
        for remedy, answers, decides in itertools.chain.from_iterable(attempt(judge) for attempt in tries):
            if time.monotonic() > self._deadline:
                break
            if shows(answers, decides):
                return remedy
        if time.monotonic() > self._deadline:
            return self._excuse(vacuous) | {"kind": "excuse untried"}
        if shows(self._with_specials(), judge):
            return self._excuse(vacuous, "finite inputs") | {"kind": "excuse of finite values"}
        return self._excuse(vacuous)

    def _with_specials(self) -> Answers:
        """The answers to NaN and infinities, whether the case has them drawn or not."""
        draws = [dataclasses.replace(draw, regime=SPECIALS[place % len(SPECIALS)])
                 for place, draw in enumerate(self._draws)]  # fmt: skip
        return self._answers(saying(self._case, specials=None), draws)

    def _answers(self, case: Case, draws: Sequence[Draw]) -> Answers:
        """The inputs that the case would have, and PyTorch's outputs; of a converted model, what it means."""
        maker = Maker(case, self._verify.reference.folder.resolve)
        for draw in draws:
            if time.monotonic() > self._deadline:
                return
            try:
                inputs = maker(draw)
            except ValueError:
                return
            yield inputs, self._verify.answers(inputs)[0]

    def _more_draws(self, judge: Judge) -> Attempts:
        """More values for each shape, where there is but one."""
        values = type(self._case.says.examples)().values
        if self._case.says.examples.values >= values:
            return
        more = [dataclasses.replace(draw, seed=draw.seed + k) for draw in self._draws for k in range(values)]
        examples = plain(self._case.says.examples) | {"values": values}
        remedy = {"kind": "draws", "yaml": f"examples: {flow(examples)}"}
        yield remedy, self._answers(self._case, more[:DRAWS]), judge

    def _tolerances(self, judge: Judge) -> Attempts:
        """The default tolerance, where the case declares another."""
        says, precision = self._case.says, self._verify.cell.precision
        names = [name for name in says.tolerance if says.tolerance[name] is says.tolerance_for(precision)]
        if not names or not self._draws:
            return
        without = saying(self._case, tolerance={**says.tolerance, names[0]: PrecisionTolerance()})
        verify = copy.copy(self._verify)
        verify.cell, verify.judge = dataclasses.replace(verify.cell, case=without), None
        first = next(self._answers(self._case, self._draws[:1]), None)
        if first is not None:
            remedy = {"kind": "tolerance", "yaml": f"tolerance: {flow({names[0]: {}})}"}
            yield remedy, self._answers(self._case, self._draws), verify.judge_of(first[1])

    def _weights(self, judge: Judge) -> Attempts:
        """Random numbers in parameters that are all zero, as layers have them that begin as nothing."""
        says, reference = self._case.says, self._verify.reference
        if says.module is None or says.script:
            return
        import torch

        module = reference.module
        names = [name for name, value in module.named_parameters() if value.numel() and not bool(value.any())]
        if not names:
            return
        changed = copied(module)
        nonzero(changed, names)
        file = says.module.split(".")[0] if reference.folder.has(says.module.split(".")[0]) else "modules"
        python = (
            "import torch\n\ndef nonzero(module):\n    torch.manual_seed(0)\n"
            f"    for name in {json.dumps(names)}:\n"
            "        torch.nn.init.normal_(module.get_parameter(name), std=0.1)\n"
        )
        remedy: Remedy = {"kind": "weights", "parameters": names, "python": python, "file": f"{file}.py"}
        if says.prepare is None:
            remedy["yaml"] = f"prepare: {file}.nonzero"
        state = torch.random.get_rng_state()
        reference.module = changed
        try:
            yield remedy, self._answers(self._case, self._draws), judge
        finally:
            reference.module = module
            torch.random.set_rng_state(state)

    def _other_values(self, judge: Judge) -> Attempts:
        for case in self._with_other_values():
            yield values_of(case), self._answers(case, self._draws), judge

    def _with_other_values(self) -> Iterator[Case]:
        """The case with other values in all of its float inputs, and in integer inputs that hold but one number."""
        inputs = self._case.says.inputs
        for values in _FLOATS:
            changed = {name: with_values(declared, values) for name, declared in inputs.items()}
            if changed != inputs:
                yield saying(self._case, inputs=changed)
        for width in (1, 9):
            changed = {name: widened(declared, width) for name, declared in inputs.items()}
            if changed != inputs:
                yield saying(self._case, inputs=changed)

    def fact(self, output: int) -> dict[str, Any]:
        """Return what is the same in all values of an output: ``name`` and, of a constant, ``value``."""
        if output not in self._facts:
            self._facts[output] = self._fact(output)
        return self._facts[output]

    def _fact(self, output: int) -> dict[str, Any]:
        seen = [wanted[output] for _, wanted in self._answers(self._case, self._draws)]
        filled = [array for array in seen if array.size]
        if not seen:  # no time was left to look
            return {"name": "close"}
        if not filled:
            return {"name": "empty"}
        first = filled[0].flat[0]
        if all(_is_all(array, first) for array in filled):
            value = first.item()
            return {"name": "constant", "value": 0.0 if value == 0 and isinstance(value, float) else value}
        shapes = {array.shape for array in filled}
        if all(len({array.tobytes() for array in filled if array.shape == shape}) == 1 for shape in shapes):
            return {"name": "independent"}
        batches = [array for array in filled if array.ndim and len(array) > 1]
        if batches and all(_is_all(array, array[:1]) for array in batches):
            return {"name": "equal rows"}
        return {"name": "close"}

    def _excuse(self, vacuous: Collection[int], inputs: str = "inputs") -> Remedy:
        """``vacuous:`` with what is known of each of these outputs."""
        facts = {output: self.fact(output) for output in sorted(vacuous)}
        whys = {output: _WHY[fact["name"]].format(**fact, inputs=inputs) for output, fact in facts.items()}
        declared = list(map(plain, self._case.says.outputs))
        assert self._verify.vacuity is not None
        count = len(self._verify.vacuity)
        if count == 1 and not declared:
            return {"kind": "excuse", "yaml": f"vacuous: {flow(whys[0])}"}
        outputs = declared or [{"name": f"out{number}"} for number in range(count)]
        for output, why in whys.items():
            outputs[output]["vacuous"] = why
        short = [output["name"] if len(output) == 1 else output for output in outputs]
        return {"kind": "excuse", "yaml": f"outputs: {flow(short)}"}

    # ---- draws that prove nothing ----------------------------------------------------------------------------

    def of_nothing(self) -> Remedy | None:
        """Return what to try where no example verified anything: values at which PyTorch's float32 is finite and
        close to float64, or a tolerance for how far it is off; None where neither helps."""
        if self._verify.cell.check == "specials":
            return {"kind": "specials", "yaml": "specials: false"}
        for case in self._with_other_values():
            if time.monotonic() > self._deadline:
                break
            if self._sound(case):
                return values_of(case)
        return self.tolerance()

    def _sound(self, case: Case) -> bool:
        """Return whether most plain draws of the case could be verified."""
        good = total = 0
        for draw in [draw for draw in self._draws if draw.regime == "plain"]:
            total += 1
            try:
                inputs = Maker(case, self._verify.reference.folder.resolve)(draw)
                wanted, ask = self._verify.answers(inputs)
                exact = ask()
            except (Stopped, ValueError):
                return False
            good += all(map(_mostly_finite, wanted)) and (
                self._verify.cell.converted or exact is None or all(map(_well_conditioned, wanted, exact))
            )
            if time.monotonic() > self._deadline:
                break
        return total > 0 and good > total / 2

    def tolerance(self, slack: float = 0.0, output: int | None = None) -> Remedy | None:
        """The absolute tolerance that covers how far PyTorch's float32 is off in plain draws, ``SLACK`` times that,
        and at least ``slack`` in ``output``; None where there is no such, or none that would still mean anything."""
        if self._verify.cell.precision != "fp32":
            return None
        off: dict[int, float] = {} if output is None else {output: slack}
        largest: dict[int, float] = {}
        for draw in [draw for draw in self._draws if draw.regime == "plain"][:8]:
            wanted, ask = self._verify.answers(self._verify.inputs(draw))
            exact = ask()
            for number, (array, true) in enumerate(zip(wanted, exact or [], strict=False)):
                finite = np.isfinite(array) if array.dtype.kind == "f" else np.zeros(array.shape, bool)
                size = float(np.abs(array).max(initial=0.0, where=finite)) if finite.any() else 0.0
                largest[number] = max(largest.get(number, 0.0), size)
                if finite.any() and not _well_conditioned(array, true):
                    off[number] = max(off.get(number, 0.0), SLACK * own_error(array, true))
        if not off or any(not 0 < slack <= WORST_SHARE * largest.get(number, 0.0) for number, slack in off.items()):
            return None
        limits = {self._name(number): {"atol": _rounded_up(slack)} for number, slack in off.items()}
        size = max(off[number] / largest[number] for number in off)
        because = f"float32 itself is off by up to {size / SLACK:.1g} of the largest value, against float64"
        if len(self._case.says.outputs) <= 1 and len(limits) == 1:
            said = {"fp32": {**next(iter(limits.values())), "because": because}}
        else:
            said = {"fp32": {"outputs": limits, "because": because}}
        return {"kind": "tolerance to declare", "yaml": f"tolerance: {flow(said)}"}

    def _name(self, output: int) -> int | str:
        outputs = self._case.says.outputs
        return outputs[output].name if output < len(outputs) else output


_WHY = {
    "empty": "it has no values",
    "constant": "it is {value} for all {inputs} that are drawn",
    "independent": "it is the same for all values that are drawn",
    "equal rows": "all of its rows are equal",
    "close": "its values lie closer together than is allowed",
}
"""What an excuse says, by the name of a fact."""


def nonzero(module: Any, names: Sequence[str]) -> None:
    """Give parameters random values, as the Python of a remedy does."""
    import torch

    torch.manual_seed(0)
    for name in names:
        torch.nn.init.normal_(module.get_parameter(name), std=0.1)


def _is_all(array: Array, value: Any) -> bool:
    return equal(array, np.full_like(array, value))


def _mostly_finite(array: Array) -> bool:
    return array.dtype.kind != "f" or not array.size or bool(np.isfinite(array).mean() > 0.5)


def _well_conditioned(wanted: Array, exact: Array) -> bool:
    if wanted.dtype.kind != "f" or wanted.shape != exact.shape:
        return wanted.shape == exact.shape
    return own_error(wanted, exact) <= ROUNDING * largest_of(wanted)


def _rounded_up(value: float) -> float:
    """To two digits, and not below."""
    unit = 10.0 ** (np.floor(np.log10(value)) - 1)
    return float(f"{np.ceil(value / unit) * unit:.2g}")
