"""Tests of the harness: they plant defects and check that they are found, and that sound things pass."""
