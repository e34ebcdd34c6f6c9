"""Read data of the user's own, and run a model on all samples of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from conformance.case.files.declaration import Case
from conformance.case.files.dims import Dims
from conformance.models.precision.calibration import batch_dim, checked
from conformance.models.reference.reference import Reference
from conformance.process.arrays import Array, Inputs
from conformance.process.disk.recorded_data import read_npz
from conformance.process.errors import Stopped, UserError, display_path


def bad_data(text: str) -> Stopped:
    """Return the failure of data that cannot be used."""
    return Stopped("declare", "BadData", text, "case")


def read_arrays(case: Case, name: str) -> dict[str, Array]:
    """Return all arrays of an ``.npz`` file beside the case file, by name. Raises Stopped (BadData) at ``declare``
    for a file that is not there, or is none of plain arrays."""
    file = case.folder / name
    if not file.is_file():
        raise bad_data(f"there is no {display_path(file)}")
    try:
        return {name: np.asarray(value) for name, value in read_npz(file).items()}
    except UserError as error:
        raise bad_data(str(error)) from None


def inputs_among(case: Case, dims: Dims, arrays: Mapping[str, Array], source: str, batch: int) -> tuple[Inputs, int]:
    """Return the inputs of the case, samples along the first axis, and how many samples a model sees at once: about
    ``batch``, as the case allows it. ``dims`` are the model's.

    Raises Stopped (BadData) at ``declare`` for inputs that are missing, or are not as the case declares them.
    """
    missing = [name for name in case.says.inputs if name not in arrays]
    if missing:
        raise bad_data(f"{source}: has no array {', '.join(missing)}; it has {', '.join(arrays) or 'none'}")
    inputs = {name: arrays[name] for name in case.says.inputs}
    lengths = {len(array) if array.ndim else 0 for array in inputs.values()}
    if len(lengths) != 1 or lengths == {0}:
        told = ", ".join(f"{name} {array.shape}" for name, array in inputs.items())
        raise bad_data(f"{source}: samples lie along the first axis of every input, as many of each; it has {told}")
    samples, dim = lengths.pop(), batch_dim(case, dims)
    firsts = {declared.type.shape[0].constant for declared in case.says.inputs.values() if declared.type.shape}
    size = firsts.pop() if len(firsts) == 1 else None
    if dim is not None:
        size = (dims.fit({dim: min(batch, samples)}) or {}).get(dim)
    if not size:
        raise bad_data(f"{source}: the case has no dim that is the first of every input, along which samples lie")
    first, sizes = checked(case, dims, _batch(inputs, 0, size), source, bad_data)
    for name, length in sizes.items():
        bounds = dims.ranges[name]
        if bounds.names <= sizes.keys() and length not in bounds.values(sizes):
            raise bad_data(f"{source}: {name} is {length}, and the case has {name}: {bounds}")
    return inputs, len(next(iter(first.values())))


def outputs_for(run: Callable[[Inputs], Sequence[Array]], inputs: Inputs, size: int) -> list[Array]:
    """Return what ``run`` gives for all samples, each output joined along its first axis; it is given ``size`` at a
    time, the last ones filled up with the last sample.

    Raises Stopped (WrongShape) at ``compare``, at nobody's fault, for outputs without the samples along the first
    axis.
    """
    samples = len(next(iter(inputs.values())))
    parts = []
    for start in range(0, samples, size):
        outputs = list(run(_batch(inputs, start, size)))
        for number, output in enumerate(outputs):
            if not output.ndim or len(output) != size:
                text = f"output {number} has shape {output.shape} for {size} samples, which lie along the first axis"
                raise Stopped("compare", "WrongShape", text)
        parts.append([output[: samples - start] for output in outputs])
    return [np.concatenate(of_one) for of_one in zip(*parts, strict=True)]


def outputs_of_module(reference: Reference, inputs: Inputs, size: int) -> list[Array]:
    """Return what the module gives for all samples. Raises Stopped at ``declare`` as the module does, and BadData for
    outputs that are not those of samples."""
    try:
        return outputs_for(reference.afresh, inputs, size)
    except Stopped as stop:
        raise bad_data(f"{reference.who}: {stop.reason}") if stop.error == "WrongShape" else stop from None


def _batch(inputs: Inputs, start: int, size: int) -> Inputs:
    at = np.minimum(np.arange(start, start + size), len(next(iter(inputs.values()))) - 1)
    return {name: array[at] for name, array in inputs.items()}
