"""The defects: what is wrong, where PyTorch calls it, and what the exporter is made to do instead."""

from __future__ import annotations

IMAGE = "x = x.reshape(-1, 1, 2, 2) * 3\n"
BACK = "\nreturn x.reshape(-1, 4)"

SYMBOLICS = [
    (
        "the slope of leaky_relu left out",
        "aten::leaky_relu",
        "x = x - 0.1\nx = F.leaky_relu(x, 0.3)  # here\nreturn x * 2",
        "g, x, slope",
        "return g.op('LeakyRelu', x)",
    ),
    (
        "the tanh form of gelu",
        "aten::gelu",
        "return F.gelu(x) + 1  # here",
        "g, x, approximate",
        """
     half = g.op('Constant', value_t=torch.tensor(0.5))
     cubic = g.op('Mul', g.op('Mul', x, x), g.op('Mul', x, g.op('Constant', value_t=torch.tensor(0.044715))))
     inner = g.op('Mul', g.op('Add', x, cubic), g.op('Constant', value_t=torch.tensor(0.7978845608)))
     one = g.op('Constant', value_t=torch.tensor(1.0))
     return g.op('Mul', g.op('Mul', half, x), g.op('Add', one, g.op('Tanh', inner)))
     """,
    ),
    (
        "softmax over another axis",
        "aten::softmax",
        "y = x * 3\nreturn torch.softmax(y, 1)  # here",
        "g, x, dim, dtype=None",
        "return g.op('Softmax', x, axis_i=0)",
    ),
    (
        "hardswish as its gate",
        "aten::hardswish",
        "return F.hardswish(x * 3)  # here",
        "g, x",
        "return g.op('HardSigmoid', x)",
    ),
    (
        "operands of a difference swapped",
        "aten::sub",
        "y = x * x\nreturn torch.sub(x, y)  # here",
        "g, x, y, alpha=None",
        "return g.op('Sub', y, x)",
    ),
    (
        "alpha of elu left out",
        "aten::elu",
        "return F.elu(x, 0.4)  # here",
        "g, x, alpha, scale, input_scale",
        "return g.op('Elu', x)",
    ),
    (
        "rounding up at a half",
        "aten::round",
        "return torch.round(x * 2 + 0.5) + x  # here",
        "g, x",
        "return g.op('Ceil', x)",
    ),
    (
        "the larger limit of clamp left out",
        "aten::clamp",
        "return torch.clamp(x, -0.5, 0.5) + x  # here",
        "g, x, low, high",
        "return g.op('Clip', x, g.op('Cast', low, to_i=1))",
    ),
    (
        "cumsum from the other end",
        "aten::cumsum",
        "return torch.cumsum(x, 1)  # here",
        "g, x, dim, dtype",
        "return g.op('CumSum', x, dim, reverse_i=1)",
    ),
    (
        "remainder cuts off",
        "aten::remainder",
        "return torch.remainder(x * 3, 2.0)  # here",
        "g, x, y",
        "return g.op('Mod', x, g.op('Cast', y, to_i=1), fmod_i=1)",
    ),
    (
        "softplus without beta",
        "aten::softplus",
        "return F.softplus(x, beta=3.0)  # here",
        "g, x, beta, threshold",
        "return g.op('Softplus', x)",
    ),
    (
        "the smallest for the largest",
        "aten::argmax",
        "i = torch.argmax(x, 1, keepdim=True)  # here\nreturn x + i",
        "g, x, dim, keepdim",
        "return g.op('ArgMin', x, axis_i=1, keepdims_i=1)",
    ),
    (
        "the epsilon of a batch norm",
        "aten::batch_norm",
        IMAGE + "x = self.norm(x)  # here" + BACK,
        "g, x, weight, bias, mean, variance, training, momentum, eps, cudnn",
        "return g.op('BatchNormalization', x, weight, bias, mean, variance, epsilon_f=1e-4)",
    ),
    (
        "the epsilon of a layer norm",
        "aten::layer_norm",
        "x = F.layer_norm(x * 0.01, (4,))  # here\nreturn x * 3",
        "g, x, shape, weight, bias, eps, cudnn",
        """
     one = g.op('Constant', value_t=torch.ones(4))
     return g.op('LayerNormalization', x, one, g.op('Constant', value_t=torch.zeros(4)), epsilon_f=1e-4)
     """,
    ),
    (
        "padding is counted",
        "aten::avg_pool2d",
        IMAGE + "x = F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)  # here" + BACK,
        "g, x, kernel, stride, padding, ceil, include, divisor",
        """
     sizes = {"kernel_shape_i": [3, 3], "strides_i": [1, 1], "pads_i": [1, 1, 1, 1]}
     return g.op('AveragePool', x, count_include_pad_i=1, **sizes)
     """,
    ),
    (
        "the mean of absolute values",
        "aten::mean",
        "m = x.mean(1, keepdim=True)  # here\nreturn x - m",
        "g, x, dim, keepdim, dtype",
        "return g.op('ReduceMean', g.op('Abs', x), axes_i=[1], keepdims_i=1)",
    ),
    (
        "a product for a sum of two",
        "aten::add",
        "y = torch.sin(x)\nreturn torch.add(x, y)  # here",
        "g, x, y, alpha=None",
        "return g.op('Mul', x, y)",
    ),
]
"""Name, operator, the lines of ``part``, the parameters of the wrong symbolic, its body."""

TRANSLATIONS = [
    (
        "the slope of leaky_relu left out",
        "aten::leaky_relu",
        "x = x - 0.1\nx = F.leaky_relu(x, 0.3)  # here\nreturn x * 2",
        "x, slope=0.01",
        "return op.LeakyRelu(x)",
    ),
    (
        "the tanh form of gelu",
        "aten::gelu",
        "return F.gelu(x) + 1  # here",
        "x, approximate='none'",
        """
     cubic = op.Mul(op.Mul(x, op.Mul(x, x)), 0.044715)
     inner = op.Mul(op.Add(x, cubic), 0.7978845608)
     return op.Mul(op.Mul(x, 0.5), op.Add(op.Tanh(inner), 1.0))
     """,
    ),
    (
        "softmax over another axis",
        "aten::softmax.int",
        "y = x * 3\nreturn torch.softmax(y, 1)  # here",
        "x, dim, dtype=None",
        "return op.Softmax(x, axis=0)",
    ),
    (
        "hardswish as its gate",
        "aten::hardswish",
        "return F.hardswish(x * 3)  # here",
        "x",
        "return op.HardSigmoid(x)",
    ),
    (
        "operands of a difference swapped",
        "aten::sub.Tensor",
        "y = x * x\nreturn torch.sub(x, y)  # here",
        "x, y, alpha=1.0",
        "return op.Sub(y, x)",
    ),
    (
        "alpha of elu left out",
        "aten::elu",
        "return F.elu(x, 0.4)  # here",
        "x, alpha=1.0, scale=1.0, input_scale=1.0",
        "return op.Elu(x)",
    ),
    ("rounding up at a half", "aten::round", "return torch.round(x * 2 + 0.5) + x  # here", "x", "return op.Ceil(x)"),
    (
        "the larger limit of clamp left out",
        "aten::clamp",
        "return torch.clamp(x, -0.5, 0.5) + x  # here",
        "x, low=None, high=None",
        "return op.Clip(x, -0.5)",
    ),
    (
        "cumsum from the other end",
        "aten::cumsum",
        "return torch.cumsum(x, 1)  # here",
        "x, dim, dtype=-1",
        "return op.CumSum(x, dim, reverse=1)",
    ),
    (
        "remainder cuts off",
        "aten::remainder.Scalar",
        "return torch.remainder(x * 3, 2.0)  # here",
        "x, y",
        "return op.Mod(x, 2.0, fmod=1)",
    ),
    (
        "softplus without beta",
        "aten::softplus",
        "return F.softplus(x, beta=3.0)  # here",
        "x, beta=1.0, threshold=20.0",
        "return op.Softplus(x)",
    ),
    (
        "the smallest for the largest",
        "aten::argmax",
        "i = torch.argmax(x, 1, keepdim=True)  # here\nreturn x + i",
        "x, dim=None, keepdim=False",
        "return op.ArgMin(x, axis=1, keepdims=1)",
    ),
    (
        "the epsilon of a layer norm",
        "aten::layer_norm",
        "x = F.layer_norm(x * 0.01, (4,))  # here\nreturn x * 3",
        "x, shape, weight=None, bias=None, eps=1e-5, cudnn=False",
        "return op.LayerNormalization(x, op.Constant(value_floats=[1.0, 1.0, 1.0, 1.0]), epsilon=1e-4)[0]",
    ),
    (
        "padding is counted",
        "aten::avg_pool2d",
        IMAGE + "x = F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)  # here" + BACK,
        "x, kernel, stride=(), padding=0, ceil=False, include=True, divisor=None",
        "return op.AveragePool(x, kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1], count_include_pad=1)",
    ),
    (
        "the mean of absolute values",
        "aten::mean.dim",
        "m = x.mean(1, keepdim=True)  # here\nreturn x - m",
        "x, dim, keepdim=False, dtype=None",
        "return op.ReduceMean(op.Abs(x), op.Constant(value_ints=[1]), keepdims=1)",
    ),
    (
        "a product for a sum of two",
        "aten::add.Tensor",
        "y = torch.sin(x)\nreturn torch.add(x, y)  # here",
        "x, y, alpha=1.0",
        "return op.Mul(x, y)",
    ),
]
"""The same for translations."""

SIZES = [
    (
        "half of a negative size",
        "left = (x.shape[1] - y.shape[1]) // 2  # here\nreturn x + y.sum() * left",
        "aten.floor_divide operator.floordiv",
    ),
    (
        "half of a size in a function",
        "left = half(x.shape[1] - y.shape[1])\nreturn x + y.sum() * left",
        "aten.floor_divide operator.floordiv",
    ),
    (
        "a division behind a padding",
        "left = (4 - y.shape[1]) // 3  # here\ny = F.pad(y, (left + 3, 0))\nreturn x + y.mean()",
        "aten.floor_divide operator.floordiv",
    ),
]
HALF = "def half(size):\n    return size // 2  # here\n\n"

BAKED = [
    (
        "the root of a size",
        "scale = 1 / math.sqrt(y.shape[1])\nx = x * scale  # here\nreturn x + y.sum()",
        "aten.mul",
    ),
    (
        "a loop over a size",
        "for i in range(y.shape[1]):\n    x = x + y[:, i : i + 1].sin()  # here\nreturn x",
        "aten.slice aten.sin aten.add",
    ),
    ("a number out of a tensor", "top = float(x.detach().abs().max())\nreturn x / top  # here", "aten.div"),
    ("a tensor made of a size", "steps = torch.full((1,), float(y.shape[1]))\nreturn x + steps  # here", "aten.add"),
    ("a branch on values", "if float(x.sum()) > 0:  # here\n    return x * 2\nreturn x - 1", "aten.mul aten.sub"),
]
