"""The reference: PyTorch eager in float32 on the untouched module, and the same module in float64."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property, partial
from typing import Any

from conformance.arrays import Array, same
from conformance.case.copying import copied
from conformance.case.declaration import Case
from conformance.case.must_hold import Output
from conformance.case.python import Folder, describe
from conformance.case.recipe import recipe
from conformance.compare.judges import Right, defaults_for
from conformance.errors import Stopped, attempt
from conformance.export.build_module import build, compile_script
from conformance.export.output_layout import array_of, layout_of, names_in_graph, of_tensors, tensors_in, tensors_of
from conformance.export.passed_inputs import Passing
from conformance.export.rounded_run import rounds
from conformance.export.rounding import Rounding, nudged
from conformance.export.standing import Standing, put_back
from conformance.export.state import byte_count, checksums, fingerprint


class Reference:
    """The module of a case with its float64 twin; build and use inside ``Folder.active()``.

    ``oracle_missing`` says why there is no float64 form, or is None.
    """

    def __init__(self, case: Case, folder: Folder) -> None:
        """Raises Stopped at ``declare`` for a module that cannot be built."""
        import torch

        self.case = case
        self.folder = folder
        self._eager: torch.nn.Module = build(case, folder)
        self.module: torch.nn.Module = compile_script(case, folder, self._eager) if case.says.script else self._eager
        self.passing = Passing(case.says.inputs, self.module)
        self.sharing = object()
        """The same for all references that share their parameters."""
        self.weights = self.fingerprint()
        self._sums = checksums(self.module)
        # In training mode every forward updates statistics; each use then starts from the same statistics.
        self._state = copy.deepcopy(self.module.state_dict()) if case.says.mode == "train" else None
        self.oracle_missing: str | None = None
        self._uncalled: _Uncalled | None = None
        self._twin: torch.nn.Module | None = None
        self._twin_is_eager = not case.says.script
        self._rounds_not = False
        self.layout: list[int] | None = None
        """How many tensors each output of the graph has (``output_layout``); None until the module was called."""
        self.listed: int | None = None
        """The output of the graph that was seen to be a list whose length depends on the inputs; 1 in ``layout``."""
        self.listed_dtype: str | None = None
        """Of what dtype its tensors are, once there were any."""
        self.changed_by_calls: list[str] = []
        """The names of what calls were seen to change in the module, and had put back."""
        self._again: torch.nn.Module | None = None
        self._sums_tell = True  # until a call changes nothing
        self.repeats = False
        """Whether several calls in a row with the same inputs were seen to give the same outputs."""
        self._last: tuple[Mapping[str, Array], list[Array]] | None = None
        """The inputs that ``once`` was last asked for, and the outputs."""
        if not case.says.script:
            uncalled = attempt(lambda: _Uncalled(_sharing(self._eager)))
            if isinstance(uncalled, Exception):
                self.oracle_missing = describe(uncalled, folder.path)
            else:
                self._uncalled = uncalled
            return
        twin = attempt(lambda: copied(self._eager).double())
        if isinstance(twin, Exception):
            self.oracle_missing = describe(twin, folder.path)
            return
        # scripted after the change of dtype, since scripting may write dtypes into what it compiles
        scripted = attempt(partial(torch.jit.script, twin))
        self._twin_is_eager = isinstance(scripted, Exception)
        self._twin = twin if isinstance(scripted, Exception) else scripted

    def for_case(self, case: Case) -> Reference | None:
        """A reference of another case that builds the module alike, with the same parameters and whatever else the
        module keeps as it was before the first call. None for a case that builds it otherwise, where parameters have
        changed since, and for scripted modules and those that cannot be copied."""
        if recipe(case) != recipe(self.case) or self._uncalled is None or self.changed():
            return None
        other = copy.copy(self)
        other.case, other.layout, other.repeats, other.oracle_missing = case, None, False, None
        other._last = None
        other.listed = other.listed_dtype = None
        other.changed_by_calls = []
        other._eager, other._twin = _sharing(self._uncalled.module), None
        other.module = other._eager
        other.passing = Passing(case.says.inputs, other.module)
        return other

    def copied(self) -> Reference:
        """The same on a module that shares nothing, to be called in ways that leave wrong values in it."""
        other = copy.copy(self)
        other.sharing, other.module = object(), copied(self.module)
        return other

    def fingerprint(self) -> str:
        """A hash of all parameters and buffers, which must be the same after an export as before."""
        return fingerprint(self.module)

    def changed(self) -> bool:
        """Return whether a parameter or a buffer is another one than when the module was built, but for the
        statistics of a module in training mode, which ``restore`` puts back."""
        self.restore()
        return checksums(self.module) != self._sums

    @cached_property
    def bytes(self) -> int:
        """The memory that the weights of the module and of its float64 twin take."""
        return 3 * byte_count(self.module)

    def restore(self) -> bool:
        """Puts the statistics of a module in training mode back; False for a module in evaluation mode."""
        if self._state is not None:
            self.module.load_state_dict(self._state)
        return self._state is not None

    def arguments(self, inputs: Mapping[str, Array], dtype: Any = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword tensors, as the case declares them; floats converted to ``dtype`` if given."""
        return self.passing.tensors(inputs, dtype)

    def __call__(self, inputs: Mapping[str, Array]) -> list[Array]:
        """All outputs, depth first, copied, since one may be a buffer of the module, which its next call changes;
        Stopped at ``declare`` where the module raises or is no proper function."""
        positional, keywords = self.arguments(inputs)
        with self.standing():
            try:
                result = self.module(*positional, **keywords)
            except (Exception, SystemExit) as error:  # of the user's module, and all of it is in the Stopped
                shapes = ", ".join(f"{name}{list(array.shape)}" for name, array in inputs.items())
                text = f"PyTorch itself raises at {shapes}: {describe(error, self.folder.path)}"
                raise Stopped("declare", type(error).__name__, text, "case") from error
            for tensor in (*positional, *keywords.values()):
                if tensor._version:
                    raise Stopped(
                        "declare", "ChangesInput",
                        "the module changes its input in place, so that the reference and the runtimes would see "
                        "different inputs; clones: true hands it a clone", "case",
                    )  # fmt: skip
            leaves = tensors_of(result, listed=self.case.says.script)
            arrays = [array_of(leaf).copy() for leaf in leaves]
            self._hold_layout(layout_of(result) if self.case.says.script else [1] * len(leaves), arrays)
            return arrays

    @contextlib.contextmanager
    def standing(self, *, told: bool = True) -> Iterator[None]:
        """Put back behind the block what it changes in the module: each call starts from the module as it was built.
        ``told`` notes it in ``changed_by_calls``. The statistics of training mode have ``restore``; what is compiled,
        or a file, is left alone."""
        if self.case.says.script or self.case.says.onnx is not None:
            yield
            return
        before = Standing(self.module, tensors=self._state is None, sums=self._sums_tell)
        try:
            yield
        finally:
            names = before.changes()
            self._sums_tell &= bool(names)
            if names:
                new = before.told(names) if told else []
                self.changed_by_calls += [name for name in new if name not in self.changed_by_calls]
                put_back(self.module, self._as_built(names), names)
                before.remove_hooks()

    def _as_built(self, changed: Collection[str]) -> Any:
        """The module as it was before its first call: the copy that was kept, or one that is built again where
        parameters have changed, which the copy shares."""
        if self._uncalled is not None and not {*dict(self.module.named_parameters())} & {*changed}:
            return self._uncalled.module
        if self._again is None:
            self._again = build(self.case, self.folder)
            if fingerprint(self._again) != self.weights:
                text = f"calling the module changes {', '.join(changed)}, and built again it has other weights"
                raise Stopped("declare", "NotDeterministic", text, "case")
        return self._again

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

    def caller(self, inputs: Mapping[str, Array]) -> Callable[[], object]:
        """A function, to be timed, that calls the module on these inputs as inference does; tensors are made here."""
        import torch

        positional, keywords = self.arguments(inputs)

        def call() -> object:
            with torch.inference_mode():
                return self.module(*positional, **keywords)

        return call

    def oracle(self, inputs: Mapping[str, Array], rounding: Rounding | None = None) -> list[Array] | None:
        """The outputs with float64 weights and inputs, copied, or None where the module has no float64 form.

        With ``rounding`` every weight, constant and result of an operator is off by it, except in a module that
        cannot be run so.
        """
        if not self._has_float64():
            return None
        if rounding is not None and not self._rounds_not:
            rounded = self._in_float64(inputs, rounding)
            if not isinstance(rounded, BaseException):
                return rounded
            self._rounds_not = True  # as an operator with a body of its own, which no dispatch mode enters
        outputs = self._in_float64(inputs)
        if not isinstance(outputs, BaseException):
            return outputs
        self._twin = None
        self.oracle_missing = describe(outputs, self.folder.path)
        if not self._twin_is_eager:
            self._twin, self._twin_is_eager = copied(self._eager).double(), True
            self.oracle_missing = None
            return self.oracle(inputs, rounding)
        return None

    def otherwise(self, inputs: Mapping[str, Array], way: contextlib.AbstractContextManager[Any]) -> list[Array]:
        """The float32 outputs computed in another ``way``; raises what the module does."""
        positional, keywords = self.arguments(inputs)
        self.restore()
        with self.standing(), way:
            return _own(self.module(*positional, **keywords), self.case.says.script)

    def _has_float64(self) -> bool:
        """Return whether there is a float64 form, which is made when it is first needed."""
        if self._twin is None and self._uncalled is not None and self.oracle_missing is None:
            make, uncalled = copied if self.changed_by_calls else _sharing, self._uncalled
            twin = attempt(lambda: make(uncalled.in_float64))  # an ONNX file may have no form in float64
            if isinstance(twin, Exception):
                self.oracle_missing = describe(twin, self.folder.path)
            else:
                self._twin = twin
        return self._twin is not None

    def _stands_for_scripted(self, inputs: Mapping[str, Array]) -> bool:
        """Return whether the eager module computes on these inputs what the scripted one does, so that the float64
        form of the one tells of the other. Its difference would count as PyTorch's own rounding."""
        import torch

        positional, keywords = self.arguments(inputs)
        self.restore()
        with torch.no_grad():
            eager = _own(self._eager(*positional, **keywords), listed=True)
        self.restore()
        return defaults_for(eager).compare(self(inputs), Right(eager)).verdict != "failed"

    def _in_float64(
        self, inputs: Mapping[str, Array], rounding: Rounding | None = None
    ) -> list[Array] | BaseException:
        try:
            return self._computed_in_float64(inputs, rounding)
        except (Exception, SystemExit) as error:  # of the user's module; the record says why there is no float64 form
            return error

    def _computed_in_float64(self, inputs: Mapping[str, Array], rounding: Rounding | None) -> list[Array]:
        import torch

        assert self._twin is not None
        if self.case.says.script and self._twin_is_eager and not self._stands_for_scripted(inputs):
            raise ValueError("in eager mode the module computes something else than scripted")
        positional, keywords = self.arguments(inputs, torch.float64)
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)  # for modules that make constants as they go
        try:
            with torch.no_grad():
                if rounding is None:
                    return _own(self._twin(*positional, **keywords), self.case.says.script)
                moved = contextlib.nullcontext() if rounding.given else self._weights_moved(rounding)
                with moved, rounds(rounding):
                    result = self._twin(*positional, **keywords)
                return _own(result, self.case.says.script)
        finally:
            torch.set_default_dtype(before)
            if self.changed_by_calls and self._uncalled is not None:
                self._twin = None  # the next call has a copy of its own

    @contextlib.contextmanager
    def _weights_moved(self, rounding: Rounding) -> Iterator[None]:
        """Inside the block the weights of the float64 twin are off by their rounding."""
        assert self._twin is not None
        own = {**dict(self._twin.named_parameters()), **dict(self._twin.named_buffers())}
        kept = {name: own[name].data for name in own}
        try:
            for name, value in nudged(kept, rounding).items():
                own[name].data = value
            yield
        finally:
            for name, value in kept.items():
                own[name].data = value


class _Uncalled:
    """A module as it was before its first call, which all references with these parameters share."""

    def __init__(self, module: Any) -> None:
        self.module = module

    @cached_property
    def in_float64(self) -> Any:
        """The same with float64 weights of its own; raises whatever the change of dtype does."""
        return copied(self.module).double()


def _own(result: Any, listed: bool) -> list[Array]:
    return [array_of(leaf).copy() for leaf in tensors_of(result, listed=listed)]


def _sharing(module: Any) -> Any:
    """The module and all that it keeps but for its parameters, which the copy shares."""
    return copied(module, {id(parameter): parameter for parameter in module.parameters()})
