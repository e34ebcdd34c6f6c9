"""Comparing runs: what got worse since a baseline, what of that is accepted, and runs that were made in parts.

``diff`` compares two runs cell by cell and gives ``Change`` values (``change``), ``facts`` says what else differs
between them. ``file`` reads and writes the baseline that is committed, whose lines are made in ``line``;
``acceptance`` changes single lines of it. ``shards`` divides cells over jobs, ``merging`` joins what the jobs leave.
``selection`` reads from a run's arguments what it was to run; ``summary`` is the text for a terminal.
"""

from conformance.baseline.acceptance import accept
from conformance.baseline.change import KINDS, Change, Limits, Run, Selected, gate
from conformance.baseline.diff import compare_runs
from conformance.baseline.facts import environment_changes
from conformance.baseline.file import load, read_baseline, write_baseline
from conformance.baseline.ids import case_of
from conformance.baseline.merging import merge
from conformance.baseline.selection import selection_of
from conformance.baseline.shards import cut, parse_shard, repeated, seconds_of, shard
from conformance.baseline.summary import lines

__all__ = [
    "KINDS",
    "Change",
    "Limits",
    "Run",
    "Selected",
    "accept",
    "case_of",
    "compare_runs",
    "cut",
    "environment_changes",
    "gate",
    "lines",
    "load",
    "merge",
    "parse_shard",
    "read_baseline",
    "repeated",
    "seconds_of",
    "selection_of",
    "shard",
    "write_baseline",
]
