"""Run cells under other versions of a runtime, and of torch."""
