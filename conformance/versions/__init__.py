"""What other versions make of cells: of a runtime, and of torch."""
