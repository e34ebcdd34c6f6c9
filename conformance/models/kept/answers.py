"""Keep the right outputs for the draws of a cell beside its model, how far rounding moves them, and its kernels.

A later run of the unchanged cell runs the runtime again, and PyTorch only to see whether it still gives the same. Of
a runtime whose arithmetic is this package's own the outputs are kept too, and compared again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from conformance.case.draw.example import Draw, Effort
from conformance.process.arrays import Array, Inputs
from conformance.process.disk.stores import touch, use, write_whole

LARGEST = 16 * 2**20
"""Bytes of arrays that are kept for a cell. Beyond that nothing is: they would fill the disk sooner than they save
time, since in a network PyTorch takes no longer than the runtime."""

_T = TypeVar("_T")
Place = tuple[object, ...]
"""What tells the draws of a cell apart."""


@dataclass
class _Table(Generic[_T]):
    """Answers of one kind, by draws: those of an earlier run, and those of this one that are to be kept."""

    known: dict[Any, _T] = field(default_factory=dict)
    new: dict[Any, _T] = field(default_factory=dict)

    @property
    def all(self) -> dict[Any, _T]:
        return {**self.known, **self.new}


class KeptAnswers:
    """The inputs of a cell's draws and what is right for them: those of an earlier run, then those of this one."""

    def __init__(
        self, folder: Path | None = None, key: str = "", new_key: Callable[[], str | None] | None = None
    ) -> None:
        """``key`` stands for all that the answers depend on; "" where there are none so far. ``new_key`` gives that
        of answers that are to be kept, None for none; without it they lie under ``key`` too. Without a folder nothing
        is kept."""
        self._folder = folder
        self._file = None if folder is None else folder / key
        self._new_key = new_key
        self._answers = _Table[tuple[Inputs, list[Array]]]()
        self._exact = _Table[list[Array] | None]()
        self._moved = _Table[list[Array]]()
        self._kernels = _Table[dict[str, object]]()
        self._outputs = _Table[tuple[list[Array], float]]()
        self.spent = 0.0
        """Seconds of CPU that an earlier run took for the outputs that this one was given."""
        self.first: list[Array] | None = None
        """PyTorch's outputs for the draw that shows whether it still answers alike; None where nothing is kept."""
        self.asked = False
        """Whether anything was asked that is not known."""
        self._written: list[Array] | None = None
        self._bytes = 0
        if self._file is not None and key:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                self._read(self._file)

    def of(self, draw: Draw) -> tuple[Inputs, list[Array]] | None:
        """The inputs of a draw, and what is right for them; None where they are not known."""
        return self._answers.known.get(_place(draw))

    def exact(self, draw: Draw) -> tuple[bool, list[Array] | None]:
        """Return whether the second of a draw's answers is known, which only some draws need, and the answer."""
        place = _place(draw)
        return place in self._exact.known, self._exact.known.get(place)

    def moved(self, draw: Draw, effort: Effort) -> list[Array] | None:
        """Return how far each value of a draw's outputs moves with rounding; None where it is not known."""
        return self._moved.known.get((*_place(draw), effort))

    def add_moved(self, draw: Draw, moved: list[Array], effort: Effort) -> None:
        """Note how far the outputs of a draw move with rounding."""
        if self._has_room_for(draw, moved):
            self._moved.new[(*_place(draw), effort)] = moved

    def kernels(self, config: Mapping[str, str]) -> dict[str, object] | None:
        """Return the kernels of the model with these session options (``runtimes.onnxruntime.kernels``); None where
        they are not known."""
        return self._kernels.known.get(_options(config))

    def add_kernels(self, config: Mapping[str, str], told: dict[str, object]) -> None:
        """Note what computes the model with these session options."""
        self._kernels.new[_options(config)] = told

    def computed(self, by: str) -> bool:
        """Return whether any outputs are known that were computed by what ``by`` says."""
        return any(computed_by == by for computed_by, _ in self._outputs.known)

    def outputs(self, by: str, inputs: Inputs) -> list[Array] | None:
        """Return copies of what an earlier run computed of these inputs, by what ``by`` says; None where that is not
        known."""
        outputs, seconds = self._outputs.known.get((by, _sha(inputs)), (None, 0.0))
        self.spent += seconds
        return None if outputs is None else [array.copy() for array in outputs]

    def add_outputs(self, by: str, inputs: Inputs, outputs: list[Array], seconds: float = 0.0) -> None:
        """Note what was computed of some inputs, in so many seconds of CPU. Whatever of ``by`` may change them has to
        be in its text."""
        place = by, _sha(inputs)
        if place[1] is not None and place not in self._outputs.new and self._has_room(outputs):
            self._outputs.new[place] = outputs, seconds

    def forget(self) -> None:
        """From here on everything is asked anew, as where PyTorch answers otherwise now, or an answer is in doubt."""
        self.first = None
        for table in (self._answers, self._exact, self._moved, self._outputs):
            table.known.clear()

    def add(self, draw: Draw, inputs: Inputs, wanted: list[Array]) -> None:
        """Note an answer to be kept. Draws of earlier failures are not asked again."""
        self.asked = True
        if self._has_room_for(draw, [*inputs.values(), *wanted]):
            self._answers.new[_place(draw)] = inputs, wanted

    def add_exact(self, draw: Draw, exact: list[Array] | None) -> None:
        """Note the second of a draw's answers; None is one too: the module has no float64 form."""
        if self._has_room_for(draw, exact or []):
            self._exact.new[_place(draw)] = exact

    def _has_room_for(self, draw: Draw, arrays: list[Array]) -> bool:
        return draw.index >= 0 and self._has_room(arrays)

    def _has_room(self, arrays: list[Array]) -> bool:
        if self._file is None:
            return False
        self._bytes += sum(array.nbytes for array in arrays)
        if self._bytes > LARGEST:
            self._file = None
        return self._file is not None

    def write(self, first: list[Array]) -> None:
        """Keep the answers of this run, if there are new ones; ``first`` is what PyTorch gave for the first draw. A
        store that cannot be written keeps none."""
        self._written = first
        tables = (self._answers, self._exact, self._moved, self._kernels, self._outputs)
        if self._file is None or not any(table.new for table in tables):
            return
        name = self._file.name if self._new_key is None else self._new_key()
        if name is not None and self._folder is not None:
            with contextlib.suppress(OSError):
                self._write(self._folder / name, first)

    def write_more(self) -> None:
        """Keep what was added after ``write`` too; nothing where that was not called."""
        if self._written is not None:
            self.write(self._written)

    def _write(self, file: Path, first: list[Array]) -> None:
        arrays: list[Array] = []

        def described(array: Array) -> list[object]:
            if array.dtype.hasobject or np.dtype(array.dtype.str) != array.dtype:
                raise OSError(f"an array of {array.dtype} cannot be kept")
            arrays.append(array)
            return [array.dtype.str, list(array.shape)]

        told = {
            "first": [described(array) for array in first],
            "draws": [
                [
                    place,
                    {name: described(array) for name, array in inputs.items()},
                    [described(array) for array in wanted],
                ]
                for place, (inputs, wanted) in self._answers.all.items()
            ],
            "exact": [
                [place, None if exact is None else [described(array) for array in exact]]
                for place, exact in self._exact.all.items()
            ],
            "moved": [[place, [described(array) for array in moved]] for place, moved in self._moved.all.items()],
            "kernels": self._kernels.all,
            "outputs": [
                [place, [described(array) for array in made], seconds]
                for place, (made, seconds) in self._outputs.all.items()
            ],
        }
        head = json.dumps(told).encode()
        data = head + b"\n" + b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)
        write_whole(file, _seal(data) + b"\n" + data)

    def _read(self, file: Path) -> None:
        """OSError, or ValueError, KeyError or TypeError for what is not as it was written."""
        data = file.read_bytes()
        use(file.parent)
        seal, _, data = data.partition(b"\n")
        if seal != _seal(data):
            raise ValueError("damaged")
        touch(file)
        end = data.index(b"\n")
        told, content, place = json.loads(data[:end]), bytearray(data[end + 1 :]), 0  # arrays that can be written to

        def array(described: Any) -> Array:
            nonlocal place
            dtype, shape = np.dtype(described[0]), tuple(described[1])
            made: Array = np.frombuffer(content, dtype, math.prod(shape), place).reshape(shape)
            place += made.nbytes
            return made

        first = list(map(array, told["first"]))
        for key, inputs, wanted in told["draws"]:
            made = {name: array(described) for name, described in inputs.items()}
            self._answers.known[_hashable(key)] = made, list(map(array, wanted))
        for key, exact in told["exact"]:
            self._exact.known[_hashable(key)] = None if exact is None else list(map(array, exact))
        for key, moved in told["moved"]:
            self._moved.known[_hashable(key)] = list(map(array, moved))
        for key, outputs, seconds in told["outputs"]:
            self._outputs.known[_hashable(key)] = list(map(array, outputs)), seconds
        self._kernels.known = told["kernels"]
        self.first = first


def key_of(parts: Iterable[object]) -> str:
    """The key of a cell's answers, from all that is stated of them; that of the model is among it."""
    return hashlib.sha256(repr(["answers", *parts]).encode()).hexdigest()[:32]


def _seal(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()


def _sha(inputs: Inputs) -> str | None:
    """Return the SHA-256 of the inputs by name; None where one is no plain array, as a sequence."""
    digest = hashlib.sha256()
    for name, array in sorted(inputs.items()):
        if not isinstance(array, np.ndarray) or array.dtype.hasobject:
            return None
        digest.update(repr((name, str(array.dtype), array.shape)).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _options(config: Mapping[str, str]) -> str:
    return json.dumps(sorted(config.items()))


def _place(draw: Draw) -> Place:
    return tuple(draw.dims.items()), draw.regime, draw.seed, draw.flags


def _hashable(value: object) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value
