"""Modules that are sound: does the suite accuse any of them?

Torch's own modules with usual arguments, run as cases of the suite in many seeds. A red is no false accusation by
itself, since exporters and runtimes have real bugs: ``looked_at.yaml`` says what somebody found out about it by hand,
and a red that is not in there counts against the suite.

``python -m evidence.accusations`` runs a share of it, or single modules, and prints the reds.
"""

from evidence.accusations.page import rows, write

__all__ = ["rows", "write"]
