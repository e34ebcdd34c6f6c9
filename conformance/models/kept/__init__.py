"""The dependencies of a result: files, definitions, pins, and all of it as one hash."""
