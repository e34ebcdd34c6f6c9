"""Exports that are wrong at a known operator and line."""
