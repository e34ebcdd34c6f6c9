"""Processes, files and errors: what everything else stands on."""
