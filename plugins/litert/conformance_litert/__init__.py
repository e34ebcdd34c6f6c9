"""LiteRT as a runtime of the conformance suite."""
