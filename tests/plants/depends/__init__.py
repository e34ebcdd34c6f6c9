"""Ways in which a case can depend on something."""
