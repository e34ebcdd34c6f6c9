"""Cases that replaced a function on which verdicts rest."""

from __future__ import annotations

from collections.abc import Iterable

from conformance.process.errors import Stopped
from conformance.process.worker.state import patched_functions
from conformance.process.worker.state.judging import is_of_the_judges


def replaced_function(names: Iterable[str]) -> Stopped | None:
    """The failure of a case that replaced these functions, if its verdict rests on one of them."""
    converts = patched_functions.remember().converts_to_others
    judging = [name for name in names if is_of_the_judges(name) or converts(name)]
    if not judging:
        return None
    text = f"the case's Python replaced {', '.join(judging[:4])}, on which the comparison rests"
    return Stopped("declare", "ReplacedFunction", text, "case")
