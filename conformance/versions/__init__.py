"""Run cells with other versions of a runtime, and of torch."""
