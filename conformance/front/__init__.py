"""What a user types: commands, the pytest plugin, the Python API."""
