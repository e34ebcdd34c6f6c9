"""Look up the operators of a model in what was measured of each."""
