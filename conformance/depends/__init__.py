"""What a result depends on: files, definitions, pins, and all of it as one hash."""
