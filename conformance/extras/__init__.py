"""What goes beyond a run. Nothing outside this room and ``front`` knows of it."""
