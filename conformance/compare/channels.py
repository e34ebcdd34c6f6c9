"""The noise of each channel of an output: a scale that is wrong for one channel is lost in the noise of all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from conformance.process.arrays import Array

_SILENT = 1e-6
"""The share of the loudest channel's signal below which a channel has none: its decibels say nothing."""


def channel_axis(rank: int) -> int | None:
    """Return the axis of the channels of an output: the second one, and of three axes the last, as layers over
    sequences give them; None of an output without channels."""
    return None if rank < 2 else 2 if rank == 3 else 1


@dataclass
class Channels:
    """Signal and noise of the channels of one output, each the sum over draws of a mean square."""

    signal: Array | None = None
    """One value for each channel, float64; None before the first draw, and where outputs have no channels or another
    number of them at each size."""
    noise: Array | None = None
    _varies: bool = False

    def see(self, wanted: Array, got: Array) -> None:
        """Add one draw, of which values that are not finite on both sides do not count."""
        axis = channel_axis(wanted.ndim)
        if self._varies or axis is None or not wanted.size:
            return
        finite = np.isfinite(wanted) & np.isfinite(got)
        right = np.where(finite, wanted, 0).astype(np.float64)
        error = np.where(finite, got, 0).astype(np.float64) - right
        others = tuple(at for at in range(wanted.ndim) if at != axis)
        signal, noise = (np.mean(np.square(values), axis=others) for values in (right, error))
        if self.signal is None or self.noise is None:
            self.signal, self.noise = signal, noise
        elif self.signal.shape != signal.shape:
            self.signal, self.noise, self._varies = None, None, True
        else:
            self.signal, self.noise = self.signal + signal, self.noise + noise

    def worst(self) -> tuple[int, float] | None:
        """Return the channel with the least signal to noise, and that in decibels; None where no channel that has a
        signal has any noise."""
        if self.signal is None or self.noise is None:
            return None
        heard = (self.signal > _SILENT * self.signal.max(initial=0.0)) & (self.noise > 0)
        if not heard.any():
            return None
        ratio = np.where(heard, self.signal / np.where(heard, self.noise, 1.0), np.inf)
        channel = int(ratio.argmin())
        return channel, 10 * float(np.log10(ratio[channel]))
