"""The schema of case files, one module for each part of a case; ``conformance.case`` puts them together."""
