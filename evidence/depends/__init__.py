"""Ways in which a case can depend on something: do the store, ``--reuse`` and ``--changed-since`` see a change?"""

from evidence.depends.page import rows, write

__all__ = ["rows", "write"]
