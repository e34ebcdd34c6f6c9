"""Compute the meaning of an ONNX file, with which a case that names one is compared. Needs no PyTorch.

ONNX's evaluator computes it, in the file's types, and in float64. Where the evaluator has no say on an operator, or
stops, ONNX Runtime computes node by node with its optimizer off, and there is no float64 form: it has few kernels for
that. Where both stop, nobody says what the file means for these inputs.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path

import numpy as np

from conformance.case.draw.few_bits import carried
from conformance.case.files.declaration import Case
from conformance.case.files.python import Folder, describe
from conformance.models.exporters.graph import refusal
from conformance.models.kept.contents import content
from conformance.models.otherwise.rounded_file import RoundedSession, is_continuous
from conformance.models.otherwise.rounding import Rounding
from conformance.models.otherwise.signed_zeros import keep_signs
from conformance.models.otherwise.undefined import Undefining
from conformance.models.otherwise.undefined_file import OpenSession, UndefinedInFile, open_operators
from conformance.models.reference.dispatch import Way
from conformance.models.reference.float64_model import in_float64, load, load_mapped, open_unoptimized, reading
from conformance.models.reference.passed_inputs import Passing
from conformance.models.reference.reference import Reference
from conformance.models.reference.written_out import COMPOSITE, write_out_operators
from conformance.process.arrays import Array, Inputs
from conformance.process.disk.onnx_models import serialized
from conformance.process.errors import Stopped, Undecided, attempt, or_else
from conformance.runtimes import Session
from conformance.runtimes.evaluator_rules import doubts, halves, has_half
from conformance.runtimes.onnxgraph.mapped import FileChanged, MappedModel, read_graph
from conformance.runtimes.onnxgraph.random_nodes import in_training, random_nodes
from conformance.runtimes.onnxgraph.reads import OWN, all_nodes
from conformance.runtimes.onnxgraph.value_free import value_free
from conformance.runtimes.unsupported import sentence

_HELD = "biufU"
"""The kinds of dtypes that are compared: booleans, whole numbers, floats and texts."""


class FileReference(Reference):
    """Computes what the file of a case means."""

    _answered = False
    """Whether ONNX's evaluator has computed anything of the file."""

    def __init__(self, case: Case, folder: Folder) -> None:
        """Raise Stopped at ``declare`` for a file that cannot be read, Undecided for one that is random."""
        super().__init__(case, folder)
        another = case.says.export.onnx is not None and case.says.export.onnx.file is not None
        self._file = case.folder / str(case.says.onnx)
        self._marks = _marks_of(self._file)
        self.who = self._file.name if another else "the file"
        self._mapped = load_mapped(self._file)
        model = self._mapped.model
        self.weights, size = _identity(self._mapped)
        self._bytes = 3 * size
        training = in_training(model)
        if training is not None:
            raise Stopped("declare", "TrainingMode", training, "case")
        drawing = random_nodes(model)
        if drawing:
            text = f"the file draws random numbers ({', '.join(drawing)}), so that no two runs have to agree"
            raise Undecided("declare", "Random", text)
        self._free = value_free(model)
        in_doubt = doubts(read_graph(self._file))  # of its own nodes, and not of casts around them
        self._written = {doubt.operator for doubt in in_doubt} & COMPOSITE
        if self._written:
            in_doubt = doubts(write_out_operators(model, self._written))
        in_doubt = [doubt for doubt in in_doubt if not doubt.mended]
        self._misread = any(doubt.misread for doubt in in_doubt)
        if in_doubt:
            self._abstain(f"ONNX's evaluator has no say on {', '.join(map(str, in_doubt))}")
        self.passing = Passing(case.says.inputs, self)
        self._open = contextlib.ExitStack()

    @property
    def may_vary(self) -> bool:
        return self.abstains is not None  # ONNX's evaluator computes nothing at random, and keeps nothing

    def _abstain(self, why: str) -> None:
        """Have ONNX Runtime say what the file means, as the evaluator does not."""
        self.abstains = why
        self.oracle_missing = f"{why}, and nothing else computes a whole model in float64"

    def __call__(self, inputs: Mapping[str, Array]) -> list[Array]:
        inputs = {name: carried(array) for name, array in inputs.items()}
        arrays = [_held(array) for array in self._meaning(inputs)]
        if self.layout is not None and len(arrays) != len(self.layout):
            text = f"a sequence of the file has as many tensors as its inputs say, {len(arrays)} in all here"
            raise Undecided("declare", "Undecided", f"{text} and {len(self.layout)} for other inputs")
        self._hold_layout([1] * len(arrays), arrays)
        return arrays

    def _meaning(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Return what is right for these inputs; raises Undecided where nobody says it."""
        said: list[str] = []
        if self.abstains is None:
            outputs = attempt(lambda: self._evaluated.run(inputs))
            self._check_unchanged(outputs)
            if not isinstance(outputs, Exception):
                self._answered = True
                return outputs
            said.append(f"ONNX's evaluator: {sentence(outputs)}")
        if not self._answered:  # it may be that the evaluator is not able to, and not that the inputs make no sense
            outputs = attempt(lambda: self._session.run(inputs))
            if not isinstance(outputs, Exception):
                if said:
                    self._abstain(f"ONNX's evaluator stops ({said[0]})")
                return outputs
            said = [*(said or [self.abstains or ""]), f"ONNX Runtime: {sentence(outputs)}"]
        if (invalid := self._invalid) is not None:
            raise Stopped("declare", invalid[0], f"onnx.checker refuses the file: {invalid[1]}", "case")
        shapes = ", ".join(f"{name}{list(array.shape)}" for name, array in inputs.items())
        text = f"nobody says what the file means at {shapes}: {'; '.join(said)}"
        if any(array.dtype.kind in "iu" for array in inputs.values()):
            text += "; where an input has to have certain values, give them with --input NAME=VALUES"
        raise Undecided("declare", "Undecided", text)

    def _check_unchanged(self, outputs: object) -> None:
        """Raise Stopped where the file has changed since it was read, so that nothing was computed of its weights."""
        if isinstance(outputs, FileChanged):
            with reading(self._file):
                raise outputs

    @cached_property
    def _invalid(self) -> list[str] | None:
        return refusal(load(self._file))

    @cached_property
    def _evaluated(self) -> OpenSession:
        found = self._mapped
        return OpenSession(write_out_operators(found.model, self._written), found.weights)

    @cached_property
    def _session(self) -> Session:
        return self._open.enter_context(open_unoptimized(self._file))

    def seconded(self, inputs: Inputs) -> list[Array] | None:
        """Return what ONNX's evaluator computes where ONNX Runtime says what is right: that it gives other values
        shows nothing then, and that it gives the same shows that these are right. None where it computes nothing."""
        outputs = attempt(lambda: None if self._misread else self._evaluated.run(inputs))
        self._check_unchanged(outputs)
        return None if isinstance(outputs, Exception) else outputs

    def value_free(self) -> Collection[int]:
        return self._free

    @cached_property
    def _session_in_float64(self) -> RoundedSession:
        found = self._mapped
        return RoundedSession(in_float64(write_out_operators(found.model, COMPOSITE)), found.weights)

    @cached_property
    def continuous(self) -> bool:
        return is_continuous(self._mapped.model.graph)

    def oracle(self, inputs: Mapping[str, Array], rounding: Rounding | None = None) -> list[Array] | None:
        if self.oracle_missing is not None:
            return None
        wide = {
            name: value.astype(float, copy=False) if value.dtype.kind == "f" else value
            for name, value in inputs.items()
        }
        exact = attempt(lambda: self._session_in_float64.run(wide, rounding))
        self._check_unchanged(exact)
        if isinstance(exact, Exception):
            self.oracle_missing = describe(exact, self.folder.path)
            return None
        return [np.array(array) for array in exact]

    def find_half(self, inputs: Mapping[str, Array]) -> str | None:
        kinds = halves(read_graph(self._file))
        self.half = next((name for name in ("bfloat16", "float16") if name in kinds), None)
        return self.half

    def leaves_range(self, inputs: Inputs) -> bool:
        if self.abstains is not None or not has_half(read_graph(self._file)):
            return False
        given = {name: carried(array) for name, array in inputs.items()}
        return isinstance(attempt(lambda: self._evaluated.run(given, beyond="raise")), FloatingPointError)

    def arguments(self, inputs: Mapping[str, Array]) -> tuple[tuple[Array, ...], dict[str, Array]]:
        return self.passing.passed(inputs)

    def otherwise(self, inputs: Inputs, way: AbstractContextManager[object]) -> list[Array]:
        with way:
            return [
                np.array(array) for array in self._evaluated.run({name: carried(inputs[name]) for name in inputs})
            ]

    def other_ways(self, operators: Collection[str], *, special: bool) -> Sequence[Way]:
        return ()

    def undefined(self, operators: Collection[str], seed: int | None) -> Undefining | None:
        return UndefinedInFile(self._evaluated, seed) if operators else None

    @cached_property
    def _leaving_open(self) -> frozenset[str]:
        names = [node.op_type for node in all_nodes(read_graph(self._file))]
        runs = not self._misread and not isinstance(attempt(lambda: self._evaluated), Exception)
        return open_operators(names) if runs else frozenset()

    def operators(
        self, inputs: Inputs, shapes: Collection[tuple[int, ...]] = ()
    ) -> tuple[frozenset[str], list[Array]]:
        """Return the operators of the file that leave something open, as far as ONNX's evaluator, which can be asked
        for other values, computes them; and of the file's values its inputs and outputs."""
        seen = [*inputs.values(), *self(inputs)] if shapes else []
        return self._leaving_open, [array for array in seen if array.dtype.kind == "f" and array.shape in shapes]

    def keeps_signs(self, inputs: Inputs) -> bool:
        nodes = [*all_nodes(read_graph(self._file))]
        return all(node.domain in OWN for node in nodes) and keep_signs([node.op_type for node in nodes])

    def caller(self, inputs: Mapping[str, Array]) -> Callable[[], object]:
        session = self._evaluated if self.abstains is None else self._session
        return lambda: session.run(inputs)

    def fingerprint(self) -> str:
        return self.weights

    def changed(self) -> bool:
        return False

    def outdated(self) -> bool:
        return _marks_of(self._file) != self._marks

    def restore(self) -> bool:
        return False

    def standing(self, *, told: bool = True) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    @property
    def bytes(self) -> int:
        return self._bytes

    def for_case(self, case: Case) -> Reference | None:
        return None

    def copied(self) -> Reference:
        return FileReference(self.case, self.folder)


def _identity(found: MappedModel) -> tuple[str, int]:
    """Return a hash of a model with its weights, and the bytes of all of it. Raises Stopped as ``load_mapped``."""
    if not found.weights:
        written = serialized(found.model)
        return written.sha, written.size
    graph = found.model.SerializeToString(deterministic=True)
    with reading(found.file):
        hashes = [content(str(file)) for file in found.weights.files]
        found.weights.check()
    digest = hashlib.sha256(graph)
    for one in hashes:
        digest.update(one or b"")
    return digest.hexdigest(), len(graph) + sum(map(found.weights.size_of, found.weights))


def _held(array: Array) -> Array:
    """A copy of an output, which a session may write to again. Raises Undecided for what is not compared."""
    copy = np.array(array)
    if copy.dtype.kind == "c":
        raise Stopped("declare", "NoTensor", "the file gives complex numbers, which cannot be compared", "case")
    if copy.dtype.kind not in _HELD or not (copy.dtype.isbuiltin or copy.dtype.kind == "U"):
        raise Undecided("declare", "Undecided", f"the file gives values of {copy.dtype}, which are not compared")
    return copy


def _marks_of(file: Path) -> tuple[int, ...]:
    """Return what tells that a file was written again; nothing of one that is not there."""
    status = or_else(None, file.stat)
    return () if status is None else (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
