"""Which nodes of a converted model cost its precision."""
