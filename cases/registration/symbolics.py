"""Symbolic functions for operators that the TorchScript exporter does not know."""


def asinh(g, x):
    return g.op("Asinh", x)
