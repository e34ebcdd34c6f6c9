"""The store of this session: made before the first cell, and kept below its limit."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from conformance.process.disk.stores import Freed, leave, make, size_of, tidy
from conformance.process.errors import display_path, why

if TYPE_CHECKING:
    from conformance.front.plugin.options import Options


class StoreHooks:
    """Makes the store, and drops what is too much in it at the start and at the end of the run."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._started = time.time()
        self._unwritable: str | None = None
        self._renewed = False
        self._left: Freed | None = None
        self.begun = self._ended = False

    def begin(self) -> None:
        """UsageError where there is no store and none can be made. One that can only be read is used as it is."""
        home = self._options.store
        try:
            self._renewed = make(home)
        except OSError as error:
            if not home.is_dir():
                text = f"--store {display_path(home)}: cannot be made ({why(error)})"
                raise pytest.UsageError(text) from None
        self._unwritable = self._trouble()
        self.begun = True
        self._tidy()

    def end(self) -> None:
        """Called when the workers of this session, which use the store, have ended."""
        if self.begun and not self._ended:
            self._ended = True
            self._unwritable = self._unwritable or self._trouble()
            leave()
            self._left = self._tidy()

    def _trouble(self) -> str | None:
        """Say why nothing can be written to the store, as on a full disk; None where it can."""
        try:
            with tempfile.TemporaryFile(dir=self._options.store) as probe:
                probe.write(bytes(4096))
        except OSError as error:
            return why(error)
        return None

    def _tidy(self) -> Freed:
        return tidy(self._options.store, self._options.store_limit(), self._started)

    def notes(self) -> Iterator[str]:
        """Tell what is to be known of the store at the end."""
        place = display_path(self._options.store)
        if self._renewed:
            yield f"{place}: was written by another version of conformance: models and answers were made again"
        if self._unwritable is not None:
            yield f"{place}: cannot be written ({self._unwritable}): each cell rebuilt what it needs"
        if self._left is not None and self._left.left > self._options.store_limit():
            yield (
                f"{place}: has {size_of(self._left.left)}, more than --store-limit {self._options['store_limit']}: "
                "what this run or another one that runs now uses is not dropped"
            )
