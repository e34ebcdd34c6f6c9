"""Ranges of the values inside a model, measured with ONNX Runtime's calibrators."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from conformance.arrays import Inputs
from conformance.case.precision import Calibration
from conformance.errors import Stopped

BINS = {"entropy": 512, "percentile": 2048}
"""Bins of the histograms, by method. With ONNX Runtime's 128, entropy has one range to choose from, which is that of
min-max; with 2048 it takes minutes for a ResNet."""


class _Reader:
    """ONNX Runtime's CalibrationDataReader over one batch: the calibrators keep all intermediate values of what a
    reader gives, so that one batch at a time bounds the memory."""

    def __init__(self, batch: Inputs) -> None:
        self._left = [batch]

    def get_next(self) -> Inputs | None:
        return self._left.pop() if self._left else None


def measure(
    model: Path, batches: Sequence[Inputs], operators: Sequence[str] | None, says: Calibration, folder: Path
) -> Any:
    """The ``TensorsData`` of the float inputs and outputs of ``operators`` (None: of all operators), by tensor name.

    ``folder`` is for temporary files. Raises Stopped at ``convert`` (BadRange) where a histogram meets a value that
    is not finite; ``check_finite`` finds the values that no histogram meets.
    """
    from onnxruntime.quantization import CalibrationMethod, create_calibrator

    method = {
        "minmax": CalibrationMethod.MinMax,
        "entropy": CalibrationMethod.Entropy,
        "percentile": CalibrationMethod.Percentile,
    }[says.method]
    options: dict[str, Any] = {"symmetric": True}
    if says.method != "minmax":
        options["num_bins"] = BINS[says.method]
    if says.method == "percentile":
        options["percentile"] = says.percentile
    with quietly():
        calibrator = create_calibrator(
            model, operators, str(folder / "augmented.onnx"), calibrate_method=method, extra_options=options
        )
        try:
            for batch in batches:
                calibrator.collect_data(_Reader(batch))
            ranges = calibrator.compute_data()
        except ValueError as error:
            if says.method == "minmax" and "finite" not in str(error):
                raise
            if says.method != "minmax":  # the error of a histogram does not say where the value is
                check_finite(measure(model, batches, operators, Calibration(), folder))
            raise not_finite(str(error)) from None
    return ranges


def check_finite(ranges: Any) -> None:
    """Raises Stopped at ``convert`` (BadRange) for a range that is infinite or NaN, of which no scale can be made."""
    for name, data in (ranges or {}).items():
        if not all(np.isfinite(end).all() for end in data.range_value):
            raise not_finite(name)


def not_finite(what: str) -> Stopped:
    """The stop for values that calibration cannot make a range of; ``what`` says where they are."""
    text = f"calibration: values inside the model are not finite on the calibration data: {what}"
    return Stopped("convert", "BadRange", text, "case")


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Silences what ONNX Runtime's quantizer prints and logs."""
    import logging

    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
