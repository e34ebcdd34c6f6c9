"""Comparing runs: what got worse since a baseline, what of that is accepted, and runs that were made in parts.

``run_comparison`` compares two runs cell by cell and gives ``Change`` values (``change``), ``change_causes`` says
what else differs between them. ``baseline_file`` reads and writes the committed baseline, whose lines are made in
``line``; ``acceptance`` changes single lines of it. ``shards`` divides cells over jobs, ``merging`` joins what the
jobs leave. ``selection`` reads from a run's arguments what it was to run; ``summary`` is the text for a terminal.
"""

from conformance.results.baseline.acceptance import accept
from conformance.results.baseline.baseline_file import load, read_baseline, write_baseline
from conformance.results.baseline.change import KINDS, Change, Limits, Run, Selected, gate
from conformance.results.baseline.change_causes import environment_changes
from conformance.results.baseline.ids import case_of
from conformance.results.baseline.merging import merge
from conformance.results.baseline.run_comparison import compare_runs
from conformance.results.baseline.selection import selection_of
from conformance.results.baseline.shards import cut, parse_shard, repeated, seconds_of, shard
from conformance.results.baseline.summary import lines

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
