"""Is an output equal, and did comparing it mean anything? NumPy alone."""
