"""A walk through a graph, operator by operator, up to the one that makes its outputs wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from conformance.diagnose.operators.captured_program import Program
from conformance.diagnose.operators.forced import Parting, Step, explains, steps
from conformance.diagnose.operators.tensor_values import Tensors, run
from conformance.process.arrays import Array, Inputs
from conformance.runtimes.onnxgraph.reads import Graph
from conformance.runtimes.registry import LITERAL

if TYPE_CHECKING:
    from onnx import ModelProto

CLEAR = 10.0
"""Times what two kernels may differ by, from which on an operator is tried as the cause at once."""
CANDIDATES = 24
"""How many operators that part by less are tried, if no other is the cause."""


@dataclass(frozen=True)
class At:
    """Inputs at which a graph is compared with the program."""

    inputs: Sequence[object]
    """As the program takes them."""
    given: Inputs
    """The same by the names of the module."""
    fails: Callable[[Sequence[Array]], bool]
    """Whether outputs are wrong for them."""
    right: Sequence[Array]
    """The outputs of the program."""


@dataclass(frozen=True)
class Cause:
    """A place at which an export goes wrong, as plain data."""

    told: dict[str, object]
    """What a record has of it."""
    name: str = ""
    """That of the operator's call; empty where none can be named."""
    operator: str = ""
    how: str = ""
    """How the call parts, which may be another way than that of an operator inside of it."""
    given: dict[str, Array] = field(default_factory=dict)
    """The tensor that is wrong, with what it should be; empty where that is not known."""

    @classmethod
    def of(cls, parting: Parting, told: dict[str, object]) -> Cause:
        given = {} if parting.instead is None else {parting.tensor: np.ascontiguousarray(parting.instead)}
        return cls(told, parting.operator.name, parting.operator.operator, parting.how, given)


class Walk:
    """One walk; ``steps`` has what was compared on the way."""

    def __init__(
        self,
        program: Program,
        model: ModelProto,
        libraries: Sequence[str],
        at: At,
        fed: Inputs,
        sizes: Mapping[str, int],
        without: Set[str] = frozenset(),
        *,
        of_form: bool = True,
        runtime: str = LITERAL,
    ) -> None:
        """``fed`` are the inputs as the graph takes them, ``sizes`` the bytes of its tensors as far as they are
        known. The operators ``without`` which to walk are put right wherever they are called; without ``of_form`` not
        where a dtype or a shape alone is wrong, as nodes may take that where values are."""
        self.program, self.model, self._libraries, self._fed = program, model, libraries, fed
        self.at, self._without, self._of_form, self.steps = at, without, of_form, list[Step]()
        self.tensors = Tensors(model, libraries, fed, [tensor for _, _, tensor in program.tied()], sizes, runtime)

    def wrong(self, *, whole: bool = False, clear: bool = False) -> Parting | None:
        """The first operator that explains why the outputs are wrong: first among those that part clearly, then, but
        for ``clear``, among the others, last those with zeros of another sign. With ``whole`` the walk goes on to the
        end."""
        found = None
        weak: list[Parting] = []
        forms: list[Parting] = []
        turned: list[Parting] = []
        for step in self._steps():
            if self._leaves_out(step):
                continue
            forms += [step.form] if step.form is not None else []
            turned += [step.turned] if step.turned is not None else []
            if step.parting is None or found is not None:
                continue
            if step.ratio is not None and step.ratio < CLEAR:
                weak += [step.parting] if len(weak) < CANDIDATES else []
            elif explains(self.program, self.at.inputs, step.parting, self.at.fails):
                found = step.parting
                if not whole:
                    return found
        if found is not None or clear:
            return found
        for parting in (*weak, *turned[:CANDIDATES]):
            if explains(self.program, self.at.inputs, parting, self.at.fails):
                return parting
        return self._in_another_form(forms) if forms else None

    def agreeing(self) -> set[str]:
        """Return the tensors that are as in PyTorch."""
        return {f"{step.tensor}" for step in self.steps if step.parting is None or step.put_right}

    def _steps(self) -> Iterator[Step]:
        for step in steps(self.program, self.at.inputs, self.tensors):
            step.put_right = self._leaves_out(step) and (step.form is None or self._of_form)
            self.steps.append(step)
            yield step

    def _leaves_out(self, step: Step) -> bool:
        return step.operator.operator in self._without

    def _in_another_form(self, forms: Sequence[Parting]) -> Parting | None:
        """The first operator with whose dtype or shape PyTorch gives an output the dtype and shape of the graph's,
        where that is not PyTorch's own. One with which PyTorch cannot go on may be meant for the nodes after it, and
        is named only if there is no other."""
        names = [value.name for value in self.model.graph.output]
        outputs = run(self.model, Graph(self.model), names, self._libraries, self._fed, self.tensors.given)
        ours, theirs = ([(one.dtype, one.shape) for one in arrays] for arrays in (outputs, self.at.right))

        def alike(arrays: Sequence[Array]) -> bool:
            forms = [(one.dtype, one.shape) for one in arrays]
            return any(form == got != right for form, got, right in zip(forms, ours, theirs, strict=False))

        for raising in (False, True) if ours != theirs else ():
            for parting in forms:
                if explains(self.program, self.at.inputs, parting, alike, raising=raising):
                    return parting
        return None
