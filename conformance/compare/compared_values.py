"""The values that are compared in place of an output's own, and the names of outputs in sentences."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from conformance.compare.detections import Detections
from conformance.compare.excuses import UNMOVED
from conformance.compare.indices import Indices, Unreadable
from conformance.compare.matched_rows import row_order
from conformance.compare.tolerance import Comparison, Subject, Worst, failed, odd_shape, subjects
from conformance.process.arrays import Array
from conformance.process.errors import Stopped


@dataclass(frozen=True)
class Reading:
    """A way to read the outputs of a cell before they are compared."""

    names: tuple[str, ...] = ()
    """The outputs' names; empty where the case gives none."""
    indices: tuple[Indices | None, ...] = ()
    """For each output what it holds indices of; empty where no output does."""
    detections: tuple[Detections, ...] = ()
    """Outputs whose rows are matched as boxes."""

    def subjects(self, count: int) -> tuple[Subject, ...]:
        """Return the names of the outputs in sentences."""
        return subjects(count, self.names)

    @property
    def is_plain(self) -> bool:
        """Return whether the own values of all outputs are compared."""
        return not self.detections and not any(self.indices)

    def indices_of(self, output: int) -> Indices | None:
        return self.indices[output] if output < len(self.indices) else None

    def is_read(self, output: int) -> bool:
        """Return whether something else than the output's own values is compared."""
        return self.indices_of(output) is not None or self.detections_of(output) is not None

    def detections_of(self, output: int) -> Detections | None:
        """The rows of boxes that an output is part of."""
        return next((known for known in self.detections if output in known.outputs), None)

    def unsettled(self, answers: Sequence[Array], other: Sequence[Array]) -> list[int]:
        """The outputs of boxes of which one of two answers, that differ by rounding alone, has too few of the rows
        of the other."""
        if len(answers) != len(other):
            return []
        return [known.boxes for known in self.detections if known.others_than(other, answers)]

    def as_dict(self) -> dict[str, object]:
        indices = [indices and indices.as_dict() for indices in self.indices]
        fields = {
            "names": list(self.names), "indices": indices if any(indices) else [],
            "detections": [boxes.as_dict() for boxes in self.detections],
        }  # fmt: skip
        return {key: value for key, value in fields.items() if value}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Reading:
        """The inverse of ``as_dict``; bundles of earlier versions have none of its keys."""
        indices = (known and Indices(known["of"], tuple(known["axis"])) for known in values.get("indices", ()))
        detections = (
            Detections(known["boxes"], tuple(known["with"]), known["at_least"])
            for known in values.get("detections", ())
        )
        return cls(tuple(values.get("names", ())), tuple(indices), tuple(detections))

    def source_of(self, known: Indices) -> str:
        """Return the name in sentences of the array that is indexed."""
        return known.of if isinstance(known.of, str) else str(self.subjects(known.of + 1)[known.of])

    def read(
        self,
        got: Sequence[Array],
        wanted: Sequence[Array],
        exact: Sequence[Array] | None,
        inputs: Mapping[str, Array],
        any_order: Sequence[bool],
        conditioning: Sequence[Array] | None = None,
    ) -> Read | Comparison:
        """Return the arrays to compare, or the failure where indices cannot be looked up.

        Indices are looked up in the arrays beside them: a runtime's in its own outputs, PyTorch's in PyTorch's. The
        values of ``exact`` are those at PyTorch's indices too: indices of its own may be others, and would excuse
        whatever a runtime has there. Raises Stopped at ``declare`` where those that are right are no indices.
        """
        if len(got) != len(wanted):
            return failed("WrongCount", f"{len(got)} outputs instead of {len(wanted)}")
        read = Read(
            [*got], [*wanted], None if exact is None else [*exact], [*any_order],
            None if conditioning is None else [*conditioning], [*self.subjects(len(wanted))], {}, {}, {},
        )  # fmt: skip
        for output in range(len(wanted)):
            known = self.indices_of(output)
            if known is not None:
                failure = self._look_up(known, read, output, got, wanted, exact, inputs)
                if failure is not None:
                    return failure
        for detections in self.detections:
            failure = self._match(detections, read)
            if failure is not None:
                return failure
        return read

    def _match(self, known: Detections, read: Read) -> Comparison | None:
        """Leave of the outputs the rows that match, in the order of those that are right.

        Float64 has its own order too; a row that it lacks excuses nothing. Of what matches nor does conditioning,
        which is measured element by element, as if rows kept their places. That of the boxes is infinite where
        rounding decides which rows there are (``unsettled``); then too few of them tell nothing of a runtime.
        """
        if max(known.outputs) >= len(read.wanted):
            raise Stopped("declare", "BadRows", f"there is no output {max(known.outputs)}", "case")
        unfit = known.unfit(read.wanted, read.called)
        if unfit is not None:
            raise Stopped("declare", "BadRows", unfit, "case")
        failure = known.odd(read.got, read.wanted, read.called)
        if failure is not None:
            return failure
        rows, goals = known.pairs(read.got, read.wanted)
        count, due = len(read.got[known.boxes]), len(read.wanted[known.boxes])
        failure = known.too_few(len(rows), count, due, read.called[known.boxes])
        if failure is not None:
            if read.conditioning is None or np.isfinite(read.conditioning[known.boxes]).all():
                return failure
            text = f"{read.called[known.boxes]}: rounding decides which rows of boxes there are"
            return Comparison("ill-conditioned", text=text)
        if read.exact is not None:
            fits = (
                all(read.exact[output].shape[1:] == read.wanted[output].shape[1:] for output in known.outputs)
                and known.unfit(read.exact, read.called) is None
            )
            true_rows, true_goals = known.pairs(read.exact, read.wanted) if fits else ([], [])
            for output in known.outputs:
                exact = read.wanted[output].astype(read.exact[output].dtype)
                exact[true_goals] = read.exact[output][true_rows]
                read.exact[output] = exact[goals]
        for output in known.outputs:
            read.got[output], read.wanted[output] = read.got[output][rows], read.wanted[output][goals]
            read.any_order[output] = False
            read.together[output] = known.outputs
            if read.conditioning is not None:
                read.conditioning[output] = UNMOVED
        read.rows["matched"] = read.rows.get("matched", 0) + len(rows)
        read.rows["unmatched"] = read.rows.get("unmatched", 0) + max(count, due) - len(rows)
        return None

    def _look_up(
        self,
        known: Indices,
        read: Read,
        output: int,
        got: Sequence[Array],
        wanted: Sequence[Array],
        exact: Sequence[Array] | None,
        inputs: Mapping[str, Array],
    ) -> Comparison | None:
        """Put what stands at the indices of ``output`` in their place."""
        source = self.checked(known, output, wanted, inputs)
        called = read.called[output]
        own, right = got[output], wanted[output]
        failure = odd_shape(called, own, right)
        if failure is None and isinstance(known.of, int):
            failure = odd_shape(read.called[known.of], got[known.of], source)
        name = self.source_of(known)
        failure = failure or known.wrong(called, own, right, source, name)
        if failure is not None:
            return failure
        values, right_values = known.values_at(own, known.source(got, inputs)), known.values_at(right, source)
        if read.any_order[output] and right.ndim:
            order = row_order(values, right_values)
            own, values = own[order], values[order]
            read.any_order[output] = False
        read.got[output], read.wanted[output] = values, right_values
        if read.exact is not None and exact is not None:
            true = known.source(exact, inputs)
            same = isinstance(known.of, int) and true.shape == source.shape
            read.exact[output] = known.values_at(right, true) if same else right_values.astype(np.float64)
        if read.conditioning is not None:  # which of equal values they name is open, and what stands there is not
            there = read.conditioning[known.of] if isinstance(known.of, int) else UNMOVED
            same = there.shape == source.shape
            read.conditioning[output] = known.values_at(right, there) if same else np.asarray(there.max(initial=0.0))
        read.called[output] = dataclasses.replace(called, looked_up_in=name)
        read.indices[output] = (name, own, right)
        return None

    def checked(self, known: Indices, output: int, wanted: Sequence[Array], inputs: Mapping[str, Array]) -> Array:
        """Return the array that the right indices of ``output`` are looked up in; Stopped where they are no indices
        of it."""
        try:
            source = known.source(wanted, inputs)
            known.check(wanted[output], source)
        except Unreadable as error:
            called = self.subjects(len(wanted))[output]
            text = f"{called} does not hold indices of {self.source_of(known)}: {error}"
            raise Stopped("declare", "BadIndices", text, "case") from None
        return source


PLAIN = Reading()
"""Outputs without names, compared as they are."""


@dataclass(frozen=True)
class Read:
    """The arrays to compare for one draw, with the values at indices in place of the indices."""

    got: list[Array]
    wanted: list[Array]
    exact: list[Array] | None
    any_order: list[bool]
    conditioning: list[Array] | None
    called: list[Subject]
    indices: dict[int, tuple[str, Array, Array]]
    """For outputs of indices: what sentences call that which is indexed, the indices of a runtime and those that are
    right."""

    together: dict[int, tuple[int, ...]]
    """For rows of boxes: the outputs that have to be of one side, since their rows belong together."""
    rows: dict[str, int]
    """How many rows of boxes were ``matched`` and ``unmatched``; empty where no rows were."""

    def told(self, comparison: Comparison) -> Comparison:
        """The comparison with the indices beside what stands at them, and how many rows were matched."""
        if not (self.indices or self.together or self.rows):
            return comparison
        worst = None if comparison.worst is None else self.worst(comparison.worst)
        return dataclasses.replace(comparison, worst=worst, rows=self.rows or None)

    def worst(self, worst: Worst) -> Worst:
        """The worst element, with the indices there where it was looked up."""
        if worst.output in self.together:
            return dataclasses.replace(worst, together=self.together[worst.output])
        known = self.indices.get(worst.output)
        if known is None:
            return worst
        name, got, wanted = known
        values = {"in": name, "got": worst.got, "wanted": worst.wanted}
        return dataclasses.replace(
            worst, got=got[worst.index].item(), wanted=wanted[worst.index].item(), looked_up=values
        )
