"""The inputs that ranges are measured on: drawn from the case, or the user's own."""

from __future__ import annotations

import hashlib
import math
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from conformance.case.draw.draw import Draw, Maker, seed_of
from conformance.case.files.declaration import Case
from conformance.case.files.dims import Dims, Sizes
from conformance.case.files.precision import Calibration
from conformance.process.arrays import Array, Inputs
from conformance.process.errors import Stopped, display_path

FEWEST = 8
"""Samples that a range needs at least."""

DRAWN = "drawn from the case"
"""The source of inputs that the user does not give."""


@dataclass(frozen=True)
class Feeds:
    """Batches of calibration inputs in their order, and what the record tells of them."""

    batches: list[Inputs]
    source: str
    """``DRAWN``, or the file or function that the batches come from."""
    samples: int
    batch: int
    """Samples in each batch; the last may have fewer."""
    sha: str
    """The hash of the arrays, in their order."""

    def as_dict(self) -> dict[str, object]:
        return {key: value for key, value in asdict(self).items() if key != "batches"}


def gather(
    case: Case,
    says: Calibration,
    dims: Dims,
    traced: Sizes,
    maker: Maker,
    resolve: Callable[[str], Callable[..., object]],
    purpose: str = "calibration",
) -> Feeds:
    """The calibration inputs of a case; ``dims`` are the model's, ``traced`` the sizes it is exported at, ``purpose``
    seeds the draws.

    Raises Stopped at ``declare`` (BadCalibration) where there are too few, where they are constant and not given so,
    have a NaN or do not fit the inputs.
    """
    if says.data is None:
        batches, source = list(_draw_batches(case, says, dims, traced, maker, purpose)), DRAWN
    else:
        batches, source = list(_read_batches(case, says, dims, resolve)), says.data
    dim = batch_dim(case, dims)
    counts = [_length(batch) if dim is not None or says.data is not None else 1 for batch in batches]
    samples = sum(counts)
    if samples < FEWEST:
        raise _bad(f"{source}: {samples} samples are too few to calibrate with; at least {FEWEST}")
    for name, declared in case.says.inputs.items():
        if declared.type.is_float:
            fixed = declared.values is not None and declared.values.exactly is not None  # which was meant so
            _check_values(f"{source}: {name}", [batch[name] for batch in batches], may_be_constant=fixed)
    return Feeds(batches, source, samples, max(counts), _sha(batches))


def batch_dim(case: Case, dims: Dims) -> str | None:
    """The dim that samples lie along: the first dim of every input, and no other dim of any; None if there is no
    such dim."""
    shapes = [declared.type.shape for declared in case.says.inputs.values()]
    name, *more = {shape[0].text if shape else "" for shape in shapes}
    if more or name not in dims.ranges:
        return None
    elsewhere = any(name in size.names for shape in shapes for size in shape[1:])
    return None if elsewhere or dims.ranges[name].fixed else name


def _draw_batches(
    case: Case, says: Calibration, dims: Dims, traced: Sizes, maker: Maker, purpose: str
) -> Iterator[Inputs]:
    dim = batch_dim(case, dims)
    wish = {**traced, **says.at, **({dim: says.batch} if dim is not None and dim not in says.at else {})}
    sizes = dims.fit(wish)
    if sizes is None:
        raise _bad(f"at: the case allows no sizes like {', '.join(f'{n}={s}' for n, s in wish.items())}")
    each = max(1, sizes[dim]) if dim is not None else 1
    for index in range(math.ceil(says.samples / each)):
        yield maker(Draw(sizes, "plain", seed_of(case.name, purpose, index)))


def _read_batches(
    case: Case, says: Calibration, dims: Dims, resolve: Callable[[str], Callable[..., Any]]
) -> Iterator[Inputs]:
    assert says.data is not None
    file = case.folder / says.data
    if file.suffix in (".npy", ".npz"):
        arrays = _read(case, file)
        count = min(says.samples, min(len(array) for array in arrays.values()))
        for start in range(0, count, says.batch):
            batch = {name: array[start : min(start + says.batch, count)] for name, array in arrays.items()}
            yield checked(case, dims, batch, says.data)[0]
        return
    if file.exists():
        raise _bad(f"{says.data}: give a .npy or .npz file, or file.function for a Python function")
    left = says.samples
    for given in _yield_batches(says.data, resolve(says.data), seed_of(case.name, "calibration")):
        if not isinstance(given, Mapping):
            raise _bad(f"{says.data}: has to yield mappings from input names to arrays, not {type(given).__name__}")
        of_one, _ = checked(case, dims, given, says.data)
        if not _length(of_one):
            raise _bad(f"{says.data}: yields an empty batch")
        yield of_one
        left -= _length(of_one)
        if left <= 0:
            return


def _yield_batches(name: str, function: Callable[..., Iterable[object]], seed: int) -> Iterator[object]:
    """Yield what the user's function yields."""
    try:
        batches = iter(function(np.random.default_rng(seed)))
    except TypeError as error:  # no function, a function without arguments, or what it returns cannot be iterated
        raise _bad(f"{name}(rng) has to yield batches: {error}") from error
    yield from batches


def _read(case: Case, file: Path) -> dict[str, Array]:
    """The arrays of a file by input name."""
    where = display_path(file)
    names = list(case.says.inputs)
    try:
        with file.open("rb") as opened:  # NumPy leaves a damaged file open
            content: Any = np.load(opened, allow_pickle=False)
            if isinstance(content, np.ndarray):
                content = {names[0]: content} if len(names) == 1 else None
            else:
                content = {name: content[name] for name in content}  # reads all members, so that a damaged one shows
    except FileNotFoundError:
        raise _bad(f"there is no {where}") from None
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise _bad(f"{where} cannot be read: {error}") from None
    if content is None:
        raise _bad(f"{where}: a .npy holds one array, the case has the inputs {', '.join(names)}; give a .npz")
    missing = [name for name in names if name not in content]
    if missing:
        raise _bad(f"{where}: has no array {', '.join(missing)}; it has {', '.join(content)}")
    arrays = {name: content[name] for name in names}
    if not all(array.ndim for array in arrays.values()):
        raise _bad(f"{where}: samples lie along the first axis, and there is none")
    lengths = {len(array) for array in arrays.values()}
    if len(lengths) != 1:
        raise _bad(f"{where}: the arrays have {' and '.join(map(str, sorted(lengths)))} samples along the first axis")
    return arrays


def _bad(text: str) -> Stopped:
    return Stopped("declare", "BadCalibration", f"calibration: {text}", "case")


def checked(
    case: Case, dims: Dims, batch: Mapping[str, object], source: str, bad: Callable[[str], Stopped] = _bad
) -> tuple[Inputs, dict[str, int]]:
    """Return a copy of the batch, and the sizes of dims in it. Raises what ``bad`` makes of a text where its arrays
    are not of the dtypes and shapes that the case declares."""
    arrays: Inputs = {}
    sizes: dict[str, int] = {}
    for name, declared in case.says.inputs.items():
        if name not in batch:
            raise bad(f"{source}: has no array {name}")
        try:
            array = np.asarray(batch[name]).copy()
        except ValueError as error:
            raise bad(f"{source}: {name} is no array: {error}") from None
        if array.dtype != np.dtype(declared.type.carrier):
            raise bad(f"{source}: {name} is {array.dtype}, declared is {declared.type}")
        for size, length in zip(declared.type.shape, array.shape, strict=False):
            if size.text in dims.ranges:
                sizes.setdefault(size.text, length)
        arrays[name] = array
    for dim, bounds in dims.ranges.items():
        if bounds.fixed and bounds.names <= sizes.keys():
            sizes[dim] = bounds.low(sizes)
    for name, declared in case.says.inputs.items():
        # A size that depends on a dim which stands alone in no input may be anything.
        wanted = [size(sizes) if size.names <= sizes.keys() else None for size in declared.type.shape]
        shape = arrays[name].shape
        if len(shape) != len(wanted) or any(w not in (None, s) for w, s in zip(wanted, shape, strict=True)):
            known = ", ".join(f"{dim}={size}" for dim, size in sizes.items() if dim in declared.type.names)
            raise bad(
                f"{source}: {name} has shape {shape}, declared is {declared.type}{f' with {known}' if known else ''}"
            )
    return arrays, sizes


def _check_values(what: str, arrays: list[Array], *, may_be_constant: bool) -> None:
    for index, array in enumerate(arrays):
        if not np.isfinite(array).all():
            raise _bad(f"{what}: batch {index} has a NaN or an infinity, which leaves no range")
    low = min((float(array.min()) for array in arrays if array.size), default=0.0)
    high = max((float(array.max()) for array in arrays if array.size), default=0.0)
    if low == high and not may_be_constant:
        raise _bad(f"{what}: every value is {low:g}; constant data measures no range")


def count_shared(inputs: Inputs, batches: Sequence[Inputs]) -> int:
    """Return how many samples of ``inputs`` are, bit for bit, among those of ``batches``; both have the same
    names, and samples along the first axis."""
    calibrated = {one for batch in batches for one in _samples(batch)}
    return sum(one in calibrated for one in _samples(inputs))


def _samples(batch: Inputs) -> Iterator[bytes]:
    arrays = [np.ascontiguousarray(batch[name]) for name in sorted(batch)]
    for index in range(_length(batch)):
        yield hashlib.sha256(b"".join(array[index].tobytes() for array in arrays)).digest()


def _length(batch: Inputs) -> int:
    return min((len(array) if array.ndim else 1 for array in batch.values()), default=1)


def _sha(batches: list[Inputs]) -> str:
    digest = hashlib.sha256()
    for batch in batches:
        for name, array in batch.items():
            digest.update(f"{name} {array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]
