"""From cases to cells: what is run, what is selected, and which failures are expected where."""
