"""The explanations of all planted and declared failures, kept in a file, and compared with it field by field.

Code that explains failures can be rewritten against this file: fault, conclusion, place, pass, smallest model and
function, and advice have to stay what they are. ``rows`` lists the failures, ``fields`` chooses what is kept of a
record, ``limits`` notes searches that ran out of time, ``collect`` runs the rows, ``file`` keeps them and selects
some, ``compare`` finds the fields that differ, and ``command`` is ``python -m evidence golden``.
"""

from evidence.golden.command import main

__all__ = ["main"]
