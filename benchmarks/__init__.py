"""How fast the suite is, next to a bare script and to what one would use instead: ``python -m benchmarks``."""
