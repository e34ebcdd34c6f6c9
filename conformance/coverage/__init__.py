"""How much of a module its outputs show: each operator call disturbed in turn, and the comparison asked for it."""
