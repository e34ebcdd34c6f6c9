"""The commands, the pytest plugin and the Python API: all that a user types."""
