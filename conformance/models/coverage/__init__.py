"""Measure how much of a module its outputs show: disturb each operator call in turn, and compare."""
