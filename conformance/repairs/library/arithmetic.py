"""Arithmetic, element by element."""


def add(op, self, other, alpha=1):
    self, other = op.alike(self, other)
    return op.Add(self, scaled(op, other, alpha))


def sub(op, self, other, alpha=1):
    self, other = op.alike(self, other)
    return op.Sub(self, scaled(op, other, alpha))


def rsub(op, self, other, alpha=1):
    self, other = op.alike(self, other)
    return op.Sub(other, scaled(op, self, alpha))


def scaled(op, x, by):
    return x if by is None or by == 1 else op.Mul(x, by)


def mul(op, self, other):
    return op.Mul(*op.alike(self, other))


def div(op, self, other, rounding_mode=None):
    """Of integers too the quotient is a float, unless it is rounded, towards 0 or down."""
    if rounding_mode == "floor":
        return floor_divide(op, self, other)
    self, other = op.alike(self, other)
    if rounding_mode is None:
        self, other = (op.Cast(x, to=1) if op.is_integer(x) else x for x in (self, other))
        return op.Div(self, other)
    return op.Div(self, other) if op.is_integer(self) else trunc(op, op.Div(self, other))


def floor_divide(op, self, other):
    """The quotient rounded down, where ``Div`` of integers cuts off; of floats as Python does it."""
    self, other = op.alike(self, other)
    if op.is_integer(self):
        return op.Div(op.Sub(self, op.Mod(self, other)), other)
    rest = op.Mod(self, other, fmod=1)
    quotient = op.Div(op.Sub(self, rest), other)
    quotient = op.Round(op.Where(apart(op, rest, other), op.Sub(quotient, 1.0), quotient))
    return op.Where(op.Equal(other, 0.0), op.Div(self, other), quotient)


def remainder(op, self, other):
    """With the sign of the divisor; ``Mod`` has it so of integers only."""
    self, other = op.alike(self, other)
    if op.is_integer(self):
        return op.Mod(self, other)
    rest = op.Mod(self, other, fmod=1)
    return op.Where(apart(op, rest, other), op.Add(rest, other), rest)


def apart(op, rest, other):
    """Where a remainder that was cut off has not the divisor's sign."""
    sides = op.Xor(op.Less(rest, 0.0), op.Less(other, 0.0))
    return op.And(op.Not(op.Equal(rest, 0.0)), sides)


def fmod(op, self, other):
    """With the sign of the dividend."""
    return op.Mod(*op.alike(self, other), fmod=1)


def trunc(op, self):
    return op.Where(op.Less(self, 0.0), op.Ceil(self), op.Floor(self))


def frac(op, self):
    return op.Sub(self, trunc(op, self))


def sign(op, self):
    """0 for NaN, for which ``Sign`` gives NaN."""
    number = op.dtype(self)
    return op.Sub(op.Cast(op.Greater(self, 0), to=number), op.Cast(op.Less(self, 0), to=number))


def round(op, self, decimals=0):
    """To the nearest, and to the even one of two."""
    if not decimals:
        return op.Round(self)
    unit = 10.0 ** abs(decimals)
    if decimals > 0:
        return op.Div(op.Round(op.Mul(self, unit)), unit)
    return op.Mul(op.Round(op.Div(self, unit)), unit)


def clamp(op, self, min=None, max=None):
    """NaN stays NaN, infinities too where there is no limit; of two limits the upper counts."""
    if min is not None:
        self = op.Max(*op.alike(self, min))
    return self if max is None else op.Min(*op.alike(self, max))


def clamp_min(op, self, min):
    return clamp(op, self, min)


def clamp_max(op, self, max):
    return clamp(op, self, None, max)


def where(op, condition, self, other):
    return op.Where(condition, *op.alike(self, other))


def masked_fill(op, self, mask, value):
    self, value = op.alike(self, value)
    return op.Where(mask, value, self)


def lerp(op, self, end, weight):
    """From the nearer end, so that both ends are reached."""
    self, end = op.alike(self, end)
    (weight,) = op.alike(self, weight)[1:]
    gap = op.Sub(end, self)
    low, high = op.Add(self, op.Mul(weight, gap)), op.Sub(end, op.Mul(gap, op.Sub(1.0, weight)))
    return op.Where(op.Less(op.Abs(weight), 0.5), low, high)


def addcmul(op, self, tensor1, tensor2, value=1):
    return op.Add(self, op.Mul(scaled(op, tensor1, value), tensor2))


def addcdiv(op, self, tensor1, tensor2, value=1):
    return op.Add(self, op.Mul(scaled(op, tensor1, value), op.Div(1.0, tensor2)))


def addmm(op, self, mat1, mat2, beta=1, alpha=1):
    return op.Add(op.MatMul(scaled(op, mat1, alpha), mat2), scaled(op, self, beta))


def baddbmm(op, self, batch1, batch2, beta=1, alpha=1):
    return addmm(op, self, batch1, batch2, beta, alpha)


def xlogy(op, self, other):
    """0 for a first factor of 0, unless the second is NaN."""
    self, other = op.alike(self, other)
    product = op.Mul(self, op.Log(other))
    zero = op.And(op.Equal(self, 0.0), op.Equal(other, other))
    return op.Where(zero, 0.0, product)


def logaddexp(op, self, other):
    """Of two equal numbers, infinities among them, without their difference."""
    self, other = op.alike(self, other)
    more = op.Log(op.Add(1.0, op.Exp(op.Neg(op.Abs(op.Sub(self, other))))))
    return op.Where(op.Equal(self, other), op.Add(self, 0.69314718055994530942), op.Add(op.Max(self, other), more))
