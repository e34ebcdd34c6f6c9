"""What the tests share; see tests/README.md."""
