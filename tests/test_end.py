"""A process that has run the suite ends clean."""

import subprocess
import sys

import pytest

PROGRAM = """
import atexit, gc, sys, types
from conformance import collector
atexit.register(lambda: print(gc.get_freeze_count() > 0))  # runs after what is registered later
if sys.argv[1] == "torch":
    sys.modules["torch"] = types.ModuleType("torch")
collector.leave_out_present()
print(gc.get_freeze_count() > 0)
"""


@pytest.mark.parametrize("imported, left_out_at_the_end", [("torch", False), ("nothing", True)])
def test_what_the_collector_left_out_is_returned_to_it_where_torch_is_there(imported, left_out_at_the_end):
    """Bindings that torch imports report their functions as leaked at the very end, unless they are collected."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, imported], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", str(left_out_at_the_end)]
