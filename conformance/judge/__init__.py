"""Decide whether an answer is right, wrong or open, or proves nothing."""
