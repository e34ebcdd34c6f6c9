"""Explanations that anybody can add: the public part of ``diagnose.explanations``, which says all about them."""

from conformance.diagnose.explanations import Question

__all__ = ["Question"]
