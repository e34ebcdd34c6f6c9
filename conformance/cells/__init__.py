"""The checks, one module each, and what a cell needs to run them."""
