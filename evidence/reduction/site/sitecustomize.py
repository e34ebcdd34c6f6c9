"""Python imports this at its start where this folder is on its path: the process then has a planted defect."""

from __future__ import annotations

import contextlib
import os

from tests.plants.planted import planting

table, _, name = os.environ["CONFORMANCE_PLANT"].partition("\t")
held = contextlib.ExitStack()
held.enter_context(planting((table, name)))
