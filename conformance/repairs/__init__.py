"""What can be done about a red cell: changes to its case, each run on all draws of the cell before it is told."""
