"""Mistakes planted in the package itself: do its own tests find them, and which ones?"""

from evidence.defects.command import main

__all__ = ["main"]
