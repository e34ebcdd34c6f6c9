"""Exported models with one small defect each: how many does the suite find, and how many do other tools find?

A mutant is a model of the shipped catalogue with one change of a kind that a wrong symbolic, exporter or optimizer
makes. It is loaded by ONNX Runtime and passes ``onnx.checker``, so that nothing but its outputs tells. The suite
meets it where it meets any exported model, in the store; cells, draws and comparison are its own.
"""

from evidence.mutants.page import rows, write

__all__ = ["rows", "write"]
