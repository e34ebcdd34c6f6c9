"""The check ``preprocess``: inputs as the deployment prepares them give the module's outputs on its own inputs.

A model that is right on drawn data is wrong on data that was prepared in another way. The prepared arrays are
compared first, and then what the module makes of them, since one that differs in the last bits is no finding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from conformance.case.files.metric import Preprocess
from conformance.case.files.python import call
from conformance.cells.input_slips import find_preparation_slip
from conformance.compare.close import distances
from conformance.compare.noise import Noise, NoiseLimit
from conformance.compare.tolerance import Subject, odd_shape
from conformance.compare.vacuity import SHUFFLED, ZEROS
from conformance.judge.verify_converted import not_finite
from conformance.models.cell_run import CellRun
from conformance.models.given_data import bad_data, inputs_among, outputs_of_module, read_arrays
from conformance.process.arrays import Array, Inputs, same
from conformance.process.errors import Stopped

_BATCH = 32
"""Samples that the module sees at once."""


def check_preprocess(run: CellRun) -> None:
    """Compare both preparations of the case's raw data. Raises Stopped (WrongPreparation) at ``compare``."""
    case, says = run.cell.case, run.cell.case.says.preprocess
    assert says is not None
    with run.stages("declare", "case"):
        raw = read_arrays(case, str(says.data or (case.says.metric and case.says.metric.data)))
        made, deployed = (_prepared(run, name, raw) for name in (says.pytorch, says.deployed))
        right, size = inputs_among(case, run.dims(), made, says.pytorch, _BATCH)
        wanted = outputs_of_module(run.reference, right, size)

    def lost(inputs: Inputs) -> str | None:
        """Return in words what the module loses with other inputs, or what it raises for them."""
        try:
            return _lost(says, outputs_of_module(run.reference, inputs, size), wanted)
        except Stopped as stop:
            return stop.reason

    with run.stages("compare", "preparation"):
        effect = None
        if not same([*deployed.values()], [*right.values()]):
            alike = all(deployed[name].shape == array.shape for name, array in right.items())
            alike = alike and all(deployed[name].dtype == array.dtype for name, array in right.items())
            effect = lost(deployed) if alike else "which the model does not take"
        if effect is not None:
            slip = find_preparation_slip(deployed, right, says.sqnr)
            more = "" if slip is None else f"; {says.deployed} is right with {slip}"
            text = f"{_difference(says, right, deployed)}, {effect}{more}"
            raise Stopped("compare", "WrongPreparation", text, "preparation")
        passing = [] if lost({name: np.zeros_like(array) for name, array in right.items()}) else [ZEROS]
        if len(wanted[0]) > 1 and not _lost(says, [np.roll(one, 1, 0) for one in wanted], wanted):
            passing.append(SHUFFLED)
    if passing:
        text = f"the outputs are as near for {' and '.join(passing)}: they show nothing of the preparation"
        raise Stopped("compare", "Vacuous", text, "case")
    run.record.examples = len(wanted[0])


def _prepared(run: CellRun, name: str, raw: Mapping[str, Array]) -> dict[str, Array]:
    """Return the inputs that a preparation makes. Raises Stopped (BadData) where it does not return all of them, and
    what it raises itself."""
    inputs, function = run.cell.case.says.inputs, run.reference.folder.resolve(name)
    given = call(f"{name}(raw)", function, {key: array.copy() for key, array in raw.items()})
    if not isinstance(given, Mapping) and len(inputs) == 1:
        given = {next(iter(inputs)): given}
    found = {key: np.asarray(given[key]) for key in inputs if key in given} if isinstance(given, Mapping) else {}
    odd = [key for key in inputs if key not in found or found[key].dtype.hasobject or not found[key].ndim]
    if odd:
        raise bad_data(
            f"{name} returns no array of all samples for {', '.join(odd)}; return one for each input, by name"
        )
    return found


def _difference(says: Preprocess, right: Inputs, deployed: Inputs) -> str:
    """Return in words where the prepared inputs are furthest apart, or have other types."""
    worst = -1.0, ""
    for name, wanted in right.items():
        got = deployed[name]
        if (got.dtype, got.shape) != (wanted.dtype, wanted.shape):
            theirs, ours = f"{got.dtype} of shape {got.shape}", f"{wanted.dtype} of shape {wanted.shape}"
            return f"{says.deployed} makes {name} {theirs}, {says.pytorch} {ours}"
        off = distances(got, wanted)
        at = np.unravel_index(int(off.argmax()), off.shape)
        text = (
            f"{says.deployed} makes {name}[{', '.join(map(str, at))}] {got[at]:.6g}, {says.pytorch} {wanted[at]:.6g} "
            f"({np.count_nonzero(off):,} of {off.size:,} values differ)"
        )
        worst = max(worst, (float(off[at]), text))
    return worst[1]


def _lost(says: Preprocess, got: Sequence[Array], wanted: Sequence[Array]) -> str | None:
    """Return in words how outputs are worse than the wanted ones; None where they are near enough."""
    limit = NoiseLimit(sqnr=says.sqnr, runtime=says.sqnr, epsilon=10 ** (-says.sqnr / 20))
    for number, (array, right) in enumerate(zip(got, wanted, strict=True)):
        called, noise = Subject(number), Noise(limit)
        failure = odd_shape(called, array, right) or not_finite(called, array, right)
        if failure is not None:
            return failure.text
        for one, due in zip(array, right, strict=True):
            noise.see(one, due)
        if not noise.within():
            return f"{called} from them: {noise.text()}"
        sample = noise.drowned()
        if sample is not None:
            return f"{called} from them is more noise than signal for sample {sample}"
    return None
