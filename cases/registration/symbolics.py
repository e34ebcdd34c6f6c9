"""Symbolic functions for operators that the TorchScript exporter does not know, or knows otherwise."""

import functools

from torch.onnx import symbolic_helper
from torch.onnx.symbolic_helper import parse_args


def asinh(g, x):
    return g.op("Asinh", x)


def register_asinh():
    """Registers asinh by the exporter's own decorator, which acts when it is applied.

    It stands inside a function so that a case decides when: a decorator at the top of this file would
    register for the whole process as soon as anybody imports it. The module is one of torch's internal
    ones and has moved before; ``torch.onnx.register_custom_op_symbolic`` is the public way.
    """
    from torch.onnx._internal.torchscript_exporter import registration

    onnx_symbolic = functools.partial(registration.onnx_symbolic, opset=9)

    @onnx_symbolic("aten::asinh")
    def asinh(g, x):
        return g.op("Asinh", x)


# parse_args has one letter for each argument: "v" leaves a graph value as it is, "i", "f" and "b" make a
# Python int, float or bool of a constant ("is", "fs" a list), and "none" says that the argument is not used.


@parse_args("v", "f", "i", "f")
def renorm(g, x, p, dim, maxnorm):
    """torch.renorm: rows along ``dim`` whose p-norm is above ``maxnorm`` are scaled down to it."""
    axes = [axis for axis in range(symbolic_helper._get_tensor_rank(x)) if axis != dim]
    exponent = g.op("Constant", value_t=_scalar(p))
    powers = g.op("Pow", g.op("Abs", x), exponent)
    # ReduceSum takes its axes as an attribute below opset 13 and as an input since.
    total = symbolic_helper._reducesum_helper(g, powers, axes_i=axes, keepdims_i=1)
    norm = g.op("Pow", total, g.op("Constant", value_t=_scalar(1 / p)))
    limit = g.op("Constant", value_t=_scalar(maxnorm))
    factor = g.op("Div", limit, g.op("Add", norm, g.op("Constant", value_t=_scalar(1e-7))))
    one = g.op("Constant", value_t=_scalar(1.0))
    return g.op("Mul", x, g.op("Where", g.op("Greater", norm, limit), factor, one))


@parse_args("v")
def mish(g, x):
    """Takes the place of the exporter's own: ONNX has had Mish as one node since opset 18."""
    return g.op("Mish", x)


@parse_args("v", "is", "b", "none")
def nansum(g, x, dim, keepdim, dtype=None):
    """torch.nansum for float tensors: NaN counts as zero.

    ``dtype`` is declared as "none", as in the exporter's own symbolics. That converts and checks nothing:
    whoever passes one gets a model without it.
    """
    zero = g.op("Constant", value_t=_scalar(0.0))
    return symbolic_helper._reducesum_helper(
        g, g.op("Where", g.op("IsNaN", x), zero, x), axes_i=dim, keepdims_i=int(keepdim)
    )


def _scalar(value):
    import torch

    return torch.tensor(value, dtype=torch.float32)
