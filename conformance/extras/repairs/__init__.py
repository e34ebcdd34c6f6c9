"""Find changes to the case of a red cell that make it green, each run on all draws of the cell before it is told."""
