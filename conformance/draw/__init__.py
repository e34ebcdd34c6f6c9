"""Which examples a cell runs, and their arrays."""
