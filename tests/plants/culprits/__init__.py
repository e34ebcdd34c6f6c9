"""Defects whose culprit is known: a table for each culprit."""
