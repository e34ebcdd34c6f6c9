"""The module of a case as reference: PyTorch eager in float32, untouched, and the same module in float64."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property, partial

import torch
from torch.nn import Module

from conformance.case.files.copying import copied
from conformance.case.files.declaration import Case
from conformance.case.files.python import Folder, describe
from conformance.case.files.recipe import recipe
from conformance.compare.judges import Right, defaults_for
from conformance.models.otherwise.half_inside import HALVES, KeepWide
from conformance.models.otherwise.other_kernels import NotedOperators, other_ways
from conformance.models.otherwise.rounded_run import Rounded
from conformance.models.otherwise.rounding import Rounding, Units
from conformance.models.otherwise.signed_zeros import keep_signs
from conformance.models.otherwise.undefined import Undefining, leaves_open, replace_undefined
from conformance.models.reference.build_module import build, compile_script
from conformance.models.reference.dispatch import Way
from conformance.models.reference.output_layout import array_of, layout_of, tensors_of
from conformance.models.reference.passed_inputs import Passing, Tensors
from conformance.models.reference.reference import Reference
from conformance.models.reference.standing import Standing, put_back
from conformance.models.reference.state import byte_count, checksums, fingerprint
from conformance.process.arrays import Array, Inputs
from conformance.process.errors import Stopped, attempt


class ModuleReference(Reference):
    """The module of a case with its float64 twin."""

    def __init__(self, case: Case, folder: Folder) -> None:
        """Raise Stopped at ``declare`` for a module that cannot be built."""
        super().__init__(case, folder)
        self._eager: Module = build(case, folder)
        self.module: Module = compile_script(case, folder, self._eager) if case.says.script else self._eager
        self.passing = Passing(case.says.inputs, self.module)
        self.weights = self.fingerprint()
        self._sums = checksums(self.module)
        # In training mode every forward updates statistics; each use then starts from the same statistics. What a
        # scripted module writes into its tensors is put back from here too.
        keeps = case.says.mode == "train" or case.says.script
        self._state = copy.deepcopy(self.module.state_dict()) if keeps else None
        self._uncalled: _Uncalled | None = None
        self._twin: Module | None = None
        self._twin_is_eager = not case.says.script
        self._rounds_not = False
        self._again: Module | None = None
        self._sums_tell = True  # until a call changes nothing
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

    def for_case(self, case: Case) -> ModuleReference | None:
        """A reference of another case that builds the module alike, with the same parameters and whatever else the
        module keeps as it was before the first call. None for a case that builds it otherwise, where parameters have
        changed since, and for scripted modules and those that cannot be copied."""
        if recipe(case) != recipe(self.case) or self._uncalled is None or self.changed():
            return None
        other = copy.copy(self)
        other.case, other.oracle_missing, other.changed_by_calls = case, None, []
        other.forget_calls()
        other._eager, other._twin = _sharing(self._uncalled.module), None
        other.module = other._eager
        other.passing = Passing(case.says.inputs, other.module)
        return other

    def copied(self) -> ModuleReference:
        """The same on a module that shares nothing, to be called in ways that leave wrong values in it."""
        other = copy.copy(self)
        other.sharing, other.module = object(), copied(self.module)
        return other

    def fingerprint(self) -> str:
        """Return a hash of all parameters and buffers, which must be the same after an export as before."""
        return fingerprint(self.module)

    def changed(self) -> bool:
        """Return whether a parameter or a buffer is another one than when the module was built, but for the
        statistics of a module in training mode, which ``restore`` puts back."""
        self.restore()
        return checksums(self.module) != self._sums

    @cached_property
    def bytes(self) -> int:
        """Return the memory that the weights of the module and of its float64 twin take."""
        return 3 * byte_count(self.module)

    def restore(self) -> bool:
        """Put the statistics of a module in training mode back; False for a module in evaluation mode."""
        if self._state is not None:
            self.module.load_state_dict(self._state)
        return self.case.says.mode == "train"

    def arguments(self, inputs: Mapping[str, Array]) -> Tensors:
        return self.passing.tensors(inputs)

    def __call__(self, inputs: Mapping[str, Array]) -> list[Array]:
        """All outputs, depth first, copied, since one may be a buffer of the module, which its next call changes;
        Stopped at ``declare`` where the module raises or is no proper function."""
        positional, keywords = self.arguments(inputs)
        with self.standing():
            try:
                result = self.module(*positional, **keywords)
            except (Exception, SystemExit) as error:  # of the user's module, and all of it is in the Stopped
                shapes = ", ".join(f"{name}{list(array.shape)}" for name, array in inputs.items())
                said = f"{describe(error, self.folder.path)}{self.passing.advice()}"
                text = f"PyTorch itself raises at {shapes}: {said}"
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
        ``told`` notes it in ``changed_by_calls``. The statistics of training mode have ``restore``; what is compiled
        is left alone."""
        if self.case.says.script:
            written = self._written()
            try:
                yield
            finally:
                names = [name for name, now in self._written().items() if now != written.get(name)]
                if names and not self.restore() and told:  # the statistics of training mode are no news
                    self.changed_by_calls += [name for name in names if name not in self.changed_by_calls]
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

    def _written(self) -> dict[str, tuple[int, int]]:
        """Return of each tensor of the module where it is and how often it was written to."""
        state = self.module.state_dict()
        return {name: (one.data_ptr(), one._version) for name, one in state.items() if isinstance(one, torch.Tensor)}

    def _as_built(self, changed: Collection[str]) -> Module:
        """Return the module as it was before its first call: the copy that was kept, or one that is built again where
        parameters have changed, which the copy shares."""
        if self._uncalled is not None and not {*dict(self.module.named_parameters())} & {*changed}:
            return self._uncalled.module
        if self._again is None:
            self._again = build(self.case, self.folder)
            if fingerprint(self._again) != self.weights:
                text = f"calling the module changes {', '.join(changed)}, and built again it has other weights"
                raise Stopped("declare", "NotDeterministic", text, "case")
        return self._again

    def caller(self, inputs: Mapping[str, Array]) -> Callable[[], object]:
        """A function, to be timed, that calls the module on these inputs as inference does; tensors are made here."""
        positional, keywords = self.arguments(inputs)

        def call() -> object:
            with torch.inference_mode():
                return self.module(*positional, **keywords)

        return call

    def oracle(self, inputs: Mapping[str, Array], rounding: Rounding | None = None) -> list[Array] | None:
        """Return the outputs with float64 weights and inputs, copied, or None where the module has no float64 form.

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

    def find_half(self, inputs: Mapping[str, Array]) -> str | None:
        noted = self._noted(inputs)
        self.half = next((name for name in HALVES if name in noted.dtypes), None)
        if self.half is not None and self._uncalled is not None:
            self.oracle_missing = None  # which may have been for want of this
        return self.half

    def otherwise(self, inputs: Mapping[str, Array], way: contextlib.AbstractContextManager[object]) -> list[Array]:
        """Return the float32 outputs computed in another ``way``; raises what the module does."""
        positional, keywords = self.arguments(inputs)
        self.restore()
        with self.standing(), way:
            return _own(self.module(*positional, **keywords), self.case.says.script)

    def other_ways(self, operators: Collection[str], *, special: bool) -> Sequence[Way]:
        return other_ways(operators, special=special)

    def undefined(self, operators: Collection[str], seed: int | None) -> Undefining | None:
        return replace_undefined(seed) if leaves_open(operators) else None

    def operators(
        self, inputs: Inputs, shapes: Collection[tuple[int, ...]] = ()
    ) -> tuple[frozenset[str], list[Array]]:
        noted = NotedOperators(shapes)
        attempt(lambda: self.otherwise(inputs, noted))  # where it stops, what came before that is known
        return frozenset(noted.names), noted.results

    def training(self, inputs: Inputs) -> Collection[str]:
        return self._noted(inputs).training

    def _noted(self, inputs: Mapping[str, Array]) -> NotedOperators:
        noted = NotedOperators()
        attempt(lambda: self.otherwise(inputs, noted))  # where it stops, what came before that is known
        return noted

    def keeps_signs(self, inputs: Inputs) -> bool:
        return keep_signs(self.operators(inputs)[0])

    def _has_float64(self) -> bool:
        """Return whether there is a float64 form, which is made when it is first needed."""
        if self._twin is None and self._uncalled is not None and self.oracle_missing is None:
            make, uncalled = copied if self.changed_by_calls else _sharing, self._uncalled
            twin = attempt(lambda: make(uncalled.in_float64))
            if isinstance(twin, Exception):
                self.oracle_missing = describe(twin, self.folder.path)
            else:
                self._twin = twin
        return self._twin is not None

    def _stands_for_scripted(self, inputs: Mapping[str, Array]) -> bool:
        """Return whether the eager module computes on these inputs what the scripted one does, so that the float64
        form of the one tells of the other. Its difference would count as PyTorch's own rounding."""
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
        assert self._twin is not None
        if self.case.says.script and self._twin_is_eager and not self._stands_for_scripted(inputs):
            raise ValueError("in eager mode the module computes something else than scripted")
        positional, keywords = self.passing.tensors(inputs, torch.float64)
        before = torch.get_default_dtype()
        wide = KeepWide() if self.half else contextlib.nullcontext()
        torch.set_default_dtype(torch.float64)  # for modules that make constants as they go
        try:
            with torch.no_grad():
                if rounding is None:
                    with wide:
                        return _own(self._twin(*positional, **keywords), self.case.says.script)
                moved = contextlib.nullcontext() if rounding.given else self._weights_moved(rounding)
                with moved, Rounded(rounding), wide:
                    result = self._twin(*positional, **keywords)
                return _own(result, self.case.says.script)
        finally:
            torch.set_default_dtype(before)
            if self.changed_by_calls and self._uncalled is not None:
                self._twin = None  # the next call has a copy of its own
            elif self.changed_by_calls and self._state is not None:
                self._twin.load_state_dict(self._state)

    @contextlib.contextmanager
    def _weights_moved(self, rounding: Rounding) -> Iterator[None]:
        """Inside the block the weights of the float64 twin are off by their rounding."""
        assert self._twin is not None
        own = {**dict(self._twin.named_parameters()), **dict(self._twin.named_buffers())}
        kept = {name: own[name].data for name in own}
        arrays = {name: value.numpy() for name, value in kept.items() if value.dtype == torch.float64}
        try:
            for name, moved in Units(rounding).nudged(arrays).items():
                own[name].data = torch.from_numpy(moved)
            yield
        finally:
            for name, value in kept.items():
                own[name].data = value


class _Uncalled:
    """A module as it was before its first call, which all references with these parameters share."""

    def __init__(self, module: Module) -> None:
        self.module = module

    @cached_property
    def in_float64(self) -> Module:
        """Return the same with float64 weights of its own; raises whatever the change of dtype does."""
        return copied(self.module).double()


def _own(result: object, listed: bool) -> list[Array]:
    return [array_of(leaf).copy() for leaf in tensors_of(result, listed=listed)]


def _sharing(module: Module) -> Module:
    """Return the module and all that it keeps but for its parameters, which the copy shares."""
    return copied(module, {id(parameter): parameter for parameter in module.parameters()})
