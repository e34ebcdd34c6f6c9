"""Find the nodes of a converted model that cost its precision."""
