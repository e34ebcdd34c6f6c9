"""The examples of a cell, and their arrays."""
