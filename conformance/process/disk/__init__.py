"""Files that outlive a process: read whatever they hold, locked, and dropped when they are many."""

DEFAULT_STORE = ".conformance"
"""Where a store is unless the user says otherwise."""
LIMIT = "20GiB"
"""The size below which a store is kept unless the user says otherwise."""
