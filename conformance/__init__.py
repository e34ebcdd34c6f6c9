"""Accuracy conformance from PyTorch to deployment; ``docs/architecture.md`` is the map of this package."""

from pathlib import Path

__version__ = "0.2.0"

HOME = Path(__file__).parent
"""The folder of this package."""
