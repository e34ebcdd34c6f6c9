"""A process that may die."""
