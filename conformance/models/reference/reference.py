"""Say for both kinds of reference how the right outputs are asked for: in declared types, and in float64.

The module of a case says it (``module_reference``), or the ONNX file that the case is about (``file_reference``), for
which PyTorch is not needed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from conformance.case.files.declaration import Case
from conformance.case.files.must_hold import Output
from conformance.case.files.python import Folder
from conformance.models.otherwise.rounding import Rounding
from conformance.models.otherwise.undefined import Undefining
from conformance.models.reference.dispatch import Way
from conformance.models.reference.output_layout import names_in_graph, of_tensors, tensors_in
from conformance.models.reference.passed_inputs import Passing
from conformance.process.arrays import Array, Inputs, same
from conformance.process.errors import Stopped

if TYPE_CHECKING:
    from torch.nn import Module


class Reference(ABC):
    """Computes what is right; used inside ``Folder.active()``."""

    who = "PyTorch"
    """The name of the reference in sentences: PyTorch, or the file."""
    module: Module
    """The module of a case that has one."""
    passing: Passing
    weights: str
    """The fingerprint as it was when the reference was made."""
    oracle_missing: str | None = None
    """The reason for which there is no float64 form."""
    abstains: str | None = None
    """The reason for which ONNX's evaluator does not say what a file means."""

    def __init__(self, case: Case, folder: Folder) -> None:
        self.case, self.folder = case, folder
        self.sharing = object()
        """The same for all references that share their parameters."""
        self.changed_by_calls: list[str] = []
        """The names of what calls were seen to change in the module, and had put back."""
        self.half: str | None = None
        """The dtype of 16 bits that is computed in besides those of the inputs, once ``find_half`` has found it."""
        self.forget_calls()

    def forget_calls(self) -> None:
        """Begin as if nothing had been called yet."""
        self.layout: list[int] | None = None
        """How many tensors each output of the graph has (``output_layout``); None before the first call."""
        self.listed: int | None = None
        """The output of the graph that was seen to be a list whose length depends on the inputs; 1 in ``layout``."""
        self.listed_dtype: str | None = None
        """Of what dtype its tensors are, once there were any."""
        self.repeats = False
        """Whether several calls in a row with the same inputs were seen to give the same outputs."""
        self._last: tuple[Mapping[str, Array], list[Array]] | None = None
        """The inputs that ``once`` was last asked for, and the outputs."""

    # ---- what a module and a file do in their own ways -------------------------------------------------------

    @abstractmethod
    def __call__(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Return all outputs, copied. Raises Stopped at ``declare`` where there are none."""

    @property
    def may_vary(self) -> bool:
        """Return whether another call with the same inputs may give other outputs."""
        return True

    @property
    def continuous(self) -> bool:
        """Return whether no output jumps by rounding, whatever the inputs; False where nobody knows."""
        return False

    @abstractmethod
    def oracle(self, inputs: Mapping[str, Array], rounding: Rounding | None = None) -> list[Array] | None:
        """Return the outputs in float64, copied, or None where there is no float64 form.

        With ``rounding`` every weight, constant and result of an operator is off by it, where that can be had.
        """

    def find_half(self, inputs: Mapping[str, Array]) -> str | None:
        """Return the dtype of 16 bits that is computed in, and have ``oracle`` compute without it.

        None where there is none, or nobody knows."""
        return None

    @abstractmethod
    def arguments(self, inputs: Mapping[str, Array]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments, as the case declares them: tensors of a module, arrays of a file."""

    @abstractmethod
    def otherwise(self, inputs: Inputs, way: AbstractContextManager[object]) -> list[Array]:
        """Return the outputs computed in another ``way``; raises what the module does."""

    @abstractmethod
    def other_ways(self, operators: Collection[str], *, special: bool) -> Sequence[Way]:
        """Return the ways in which the same is computed by other kernels, more of them for ``special`` values."""

    @abstractmethod
    def undefined(self, operators: Collection[str], seed: int | None) -> Undefining | None:
        """Return a way that puts other values for what is not defined, or, without a ``seed``, notes by which rules
        something is; None where these operators define all that they give."""

    @abstractmethod
    def operators(
        self, inputs: Inputs, shapes: Collection[tuple[int, ...]] = ()
    ) -> tuple[frozenset[str], list[Array]]:
        """Return the names of the operators that a call runs, and the floats of these shapes among results."""

    def training(self, inputs: Inputs) -> Collection[str]:
        """Return the operators by which a call goes by the statistics of its batch, or drops values at random."""
        return ()

    def leaves_range(self, inputs: Inputs) -> bool:
        """Return whether something of 16 bits comes to numbers that these do not hold, too large or too small: a
        runtime may hold them in 32 bits on its way."""
        return False

    @abstractmethod
    def keeps_signs(self, inputs: Inputs) -> bool:
        """Return whether the operators that a call runs leave no zero's sign open."""

    @abstractmethod
    def caller(self, inputs: Mapping[str, Array]) -> Callable[[], object]:
        """Return a function, to be timed, that computes the outputs for these inputs as inference does."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Return a hash of all that decides on the outputs, which must be the same after an export as before."""

    @abstractmethod
    def changed(self) -> bool:
        """Return whether something else is computed than when the reference was made."""

    def outdated(self) -> bool:
        """Return whether what it was made of was replaced since, as a file that was saved again."""
        return False

    @abstractmethod
    def restore(self) -> bool:
        """Put the statistics of a module in training mode back; False where there are none."""

    @abstractmethod
    def standing(self, *, told: bool = True) -> AbstractContextManager[None]:
        """Put back behind the block what it changes; ``told`` notes it in ``changed_by_calls``."""

    @property
    @abstractmethod
    def bytes(self) -> int:
        """The memory that the weights and their float64 form take."""

    @abstractmethod
    def for_case(self, case: Case) -> Reference | None:
        """Return a reference of another case that shares the parameters of this one; None where it cannot."""

    @abstractmethod
    def copied(self) -> Reference:
        """Return the same on what shares nothing, to be called in ways that leave wrong values in it."""

    def seconded(self, inputs: Inputs) -> list[Array] | None:
        """Return the outputs of somebody who computes a file besides the one that says what is right, where that one
        may be wrong itself; None where there is nobody."""
        return None

    def value_free(self) -> Collection[int]:
        """Return the outputs that depend on no value of an input, as far as a graph shows it."""
        return ()

    # ---- the outputs of calls --------------------------------------------------------------------------------

    def afresh(self, inputs: Mapping[str, Array]) -> list[Array]:
        """All outputs of the module as it was built."""
        self.restore()
        return self(inputs)

    def once(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Return the outputs for these inputs, of an earlier call where that was the last that was asked for so.

        The cells of a case ask for the same first draw, each for the module as it was built. Whoever takes these
        outputs for right asks once more whether the module still gives them."""
        if self._last is None or not same([*self._last[0].values()], [*inputs.values()]):
            self._last = inputs, self.afresh(inputs)
        return self._last[1]

    def _hold_layout(self, layout: list[int], arrays: list[Array]) -> None:
        """Stopped at ``declare`` where there are more or fewer tensors than there were before, but in one list of a
        scripted module, which is ``listed`` then."""
        before = layout if self.layout is None else self.layout
        changed = [output for output, counts in enumerate(zip(layout, before, strict=False)) if len({*counts}) > 1]
        vary = [output for output in changed if output != self.listed]
        most = 1 if self.case.says.script and self.listed is None else 0
        if len(layout) != len(before) or len(vary) > most:
            text = (
                f"how many tensors forward returns depends on its inputs: {tensors_in(layout)}, and for others "
                f"{tensors_in(before)}; return a tuple of a fixed length, or stack them into one tensor; with "
                "script: true one list may have any length"
            )
            raise Stopped("declare", "VaryingOutputs", text, "case")
        self.listed = vary[0] if vary else self.listed
        self.layout = [1 if output == self.listed else count for output, count in enumerate(before)]
        if self.listed is not None and layout[self.listed]:
            self.listed_dtype = str(arrays[sum(layout[: self.listed])].dtype)

    def listed_among(self) -> int | None:
        """Return which tensor that ``outputs`` is about is the list; None where no length was seen to vary."""
        return None if self.listed is None else sum((self.layout or [])[: self.listed])

    def outputs(self) -> list[Output]:
        """Return what the case declares of each tensor that forward returns, of the tensors of a list one by one."""
        return of_tensors(self.case.says.outputs, self.layout or [])

    def output_names(self, inputs: Mapping[str, Array]) -> list[str]:
        """The names that the case declares for the outputs of the graph; empty where it declares none."""
        declared = [output.name for output in self.case.says.outputs]
        if declared and self.layout is None:
            self(inputs)
        return names_in_graph(declared, self.layout or [])
