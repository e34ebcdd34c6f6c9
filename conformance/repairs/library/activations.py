"""Activations."""


def leaky_relu(op, self, negative_slope=0.01):
    return op.LeakyRelu(self, alpha=float(negative_slope))


def elu(op, self, alpha=1.0, scale=1.0, input_scale=1.0):
    low = op.Elu(op.Mul(self, float(input_scale)), alpha=float(alpha))
    return op.Mul(op.Where(op.Greater(self, 0.0), self, low), float(scale))


def celu(op, self, alpha=1.0):
    low = op.Mul(op.Elu(op.Div(self, float(alpha))), float(alpha))
    return op.Where(op.Greater(self, 0.0), self, low)


def selu(op, self):
    return elu(op, self, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


def softplus(op, self, beta=1, threshold=20):
    scaled = op.Mul(self, float(beta))
    return op.Where(op.Greater(scaled, float(threshold)), self, op.Div(op.Softplus(scaled), float(beta)))


def log_sigmoid(op, self):
    """Without the logarithm of a sigmoid, which is 0 long before the result is -inf."""
    return op.Sub(op.Min(self, 0.0), op.Softplus(op.Neg(op.Abs(self))))


def gelu(op, self, approximate="none"):
    if approximate == "tanh":
        cubic = op.Mul(op.Mul(self, op.Mul(self, self)), 0.044715)
        gate = op.Tanh(op.Mul(op.Add(self, cubic), 0.79788456080286535588))
    else:
        gate = op.Erf(op.Mul(self, 0.70710678118654752440))
    return op.Mul(op.Mul(self, 0.5), op.Add(gate, 1.0))


def hardsigmoid(op, self):
    return op.HardSigmoid(self, alpha=1 / 6, beta=0.5)


def hardswish(op, self):
    return op.Mul(self, op.HardSigmoid(self, alpha=1 / 6, beta=0.5))


def hardtanh(op, self, min_val=-1, max_val=1):
    return op.Min(op.Max(self, float(min_val)), float(max_val))


def relu6(op, self):
    return hardtanh(op, self, 0, 6)


def hardshrink(op, self, lambd=0.5):
    """NaN stays NaN: what is chosen by is the range that becomes 0."""
    return op.Where(op.LessOrEqual(op.Abs(self), float(lambd)), 0.0, self)


def softshrink(op, self, lambd=0.5):
    return op.Sub(self, hardtanh(op, self, -lambd, lambd))


def kept_above(op, self, threshold, value):
    return op.Where(op.LessOrEqual(self, threshold), value, self)


def silu(op, self):
    return op.Mul(self, op.Sigmoid(self))


def mish(op, self):
    return op.Mul(self, op.Tanh(softplus(op, self)))


def prelu(op, self, weight):
    """A slope for each channel, which is the second dim."""
    rank = op.rank(self)
    slope = op.Reshape(weight, [1, -1] + [1] * (rank - 2)) if rank > 1 else weight
    return op.Where(op.Greater(self, 0.0), self, op.Mul(self, slope))
