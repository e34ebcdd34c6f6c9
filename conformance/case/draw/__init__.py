"""Draw the examples that a cell runs, and their arrays."""
