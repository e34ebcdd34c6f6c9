"""Sums, means, norms and pools."""


def reduced(op, kind, x, dims, keepdim):
    """A reduction over some dims, or over all for an empty list; the axes are an input from an opset on."""
    reduce, keepdims = getattr(op, f"Reduce{kind}"), int(bool(keepdim))
    if not dims:
        return reduce(x, keepdims=keepdims)
    if op.opset >= (13 if kind == "Sum" else 18):
        return reduce(x, list(dims), keepdims=keepdims)
    return reduce(x, axes=list(dims), keepdims=keepdims)


def listed(dim):
    return [] if dim is None else [dim] if isinstance(dim, int) else list(dim)


def converted(op, x, dtype):
    return x if dtype is None else op.Cast(x, to=op.of_code(dtype))


def mean(op, self, dim=None, keepdim=False, dtype=None):
    return reduced(op, "Mean", converted(op, self, dtype), listed(dim), keepdim)


def sum(op, self, dim=None, keepdim=False, dtype=None):
    """Of integers in int64."""
    x = op.Cast(self, to=7) if dtype is None and op.is_integer(self) else converted(op, self, dtype)
    return reduced(op, "Sum", x, listed(dim), keepdim)


def amax(op, self, dim=None, keepdim=False):
    return reduced(op, "Max", self, listed(dim), keepdim)


def amin(op, self, dim=None, keepdim=False):
    return reduced(op, "Min", self, listed(dim), keepdim)


def logsumexp(op, self, dim, keepdim=False):
    top = reduced(op, "Max", self, listed(dim), True)
    top = op.Where(op.IsInf(top), 0.0, top)
    inner = reduced(op, "Sum", op.Exp(op.Sub(self, top)), listed(dim), True)
    found = op.Add(op.Log(inner), top)
    return found if keepdim else reduced(op, "Max", found, listed(dim), False)


def softmax(op, self, dim, dtype=None):
    x = converted(op, self, dtype)
    if op.opset >= 13:
        return op.Softmax(x, axis=dim)
    powers = op.Exp(op.Sub(x, reduced(op, "Max", x, [dim], True)))
    return op.Div(powers, reduced(op, "Sum", powers, [dim], True))


def log_softmax(op, self, dim, dtype=None):
    x = converted(op, self, dtype)
    if op.opset >= 13:
        return op.LogSoftmax(x, axis=dim)
    x = op.Sub(x, reduced(op, "Max", x, [dim], True))
    return op.Sub(x, op.Log(reduced(op, "Sum", op.Exp(x), [dim], True)))


def cumsum(op, self, dim, dtype=None):
    x = op.Cast(self, to=7) if dtype is None and op.is_integer(self) else converted(op, self, dtype)
    if op.rank(self) == 0:
        return x
    return op.CumSum(x, [dim])


def argmax(op, self, dim=None, keepdim=False):
    return extreme(op, op.ArgMax, self, dim, keepdim)


def argmin(op, self, dim=None, keepdim=False):
    return extreme(op, op.ArgMin, self, dim, keepdim)


def extreme(op, node, x, dim, keepdim):
    """The first of equal ones; without a dim that of all values in a row."""
    if dim is None:
        return node(op.Reshape(x, [-1]), axis=0, keepdims=0)
    return node(x, axis=dim, keepdims=int(bool(keepdim)))


def batch_norm(op, input, weight=None, bias=None, running_mean=None, running_var=None, training=False, momentum=0.1,
               eps=1e-5, cudnn_enabled=True):  # fmt: skip
    """With the statistics that were kept, as in eval mode."""
    shape = [1, -1] + [1] * (op.rank(input) - 2)
    mean, variance = op.Reshape(running_mean, shape), op.Reshape(running_var, shape)
    x = op.Div(op.Sub(input, mean), op.Sqrt(op.Add(variance, eps)))
    x = x if weight is None else op.Mul(x, op.Reshape(weight, shape))
    return x if bias is None else op.Add(x, op.Reshape(bias, shape))


def layer_norm(op, input, normalized_shape, weight=None, bias=None, eps=1e-5, cudnn_enable=True):
    dims = list(range(-len(normalized_shape), 0))
    centred = op.Sub(input, reduced(op, "Mean", input, dims, True))
    variance = reduced(op, "Mean", op.Mul(centred, centred), dims, True)
    x = op.Div(centred, op.Sqrt(op.Add(variance, eps)))
    x = x if weight is None else op.Mul(x, weight)
    return x if bias is None else op.Add(x, bias)


def rms_norm(op, input, normalized_shape, weight=None, eps=None):
    """Without an epsilon that of float32, which is the distance of 1 to the next number."""
    squares = reduced(op, "Mean", op.Mul(input, input), list(range(-len(normalized_shape), 0)), True)
    x = op.Div(input, op.Sqrt(op.Add(squares, 2.0**-23 if eps is None else eps)))
    return x if weight is None else op.Mul(x, weight)


def cosine_similarity(op, x1, x2, dim=1, eps=1e-8):
    """Each of the two norms is at least eps."""
    x1, x2 = op.alike(x1, x2)
    norms = [op.Max(op.Sqrt(reduced(op, "Sum", op.Mul(x, x), [dim], True)), eps) for x in (x1, x2)]
    return reduced(op, "Sum", op.Mul(op.Div(x1, norms[0]), op.Div(x2, norms[1])), [dim], False)


def avg_pool(op, x, count, kernel, stride, padding, ceil_mode, count_include_pad, divisor):
    """``count`` dims at the end are pooled. With a divisor of one's own padding counts as zeros do."""
    kernel, stride, padding = (
        list(sizes) * (count if len(sizes) == 1 else 1) for sizes in (kernel, stride or kernel, padding)
    )
    alone = op.rank(x) == count + 1  # there is no batch
    x = batched(op, op.Unsqueeze, x) if alone else x
    area = 1
    for size in kernel:
        area *= size
    means = op.AveragePool(
        x, kernel_shape=kernel, strides=stride, pads=[*padding, *padding], ceil_mode=int(bool(ceil_mode)),
        count_include_pad=int(bool(count_include_pad or divisor)),
    )  # fmt: skip
    means = means if divisor is None else op.Mul(means, area / divisor)
    return batched(op, op.Squeeze, means) if alone else means


def batched(op, node, x):
    """The first dim put there or taken away; axes are an input from opset 13 on."""
    return node(x, [0]) if op.opset >= 13 else node(x, axes=[0])


def avg_pool1d(op, self, kernel_size, stride=(), padding=(0,), ceil_mode=False, count_include_pad=True):
    return avg_pool(op, self, 1, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


def avg_pool2d(op, self, kernel_size, stride=(), padding=(0,), ceil_mode=False, count_include_pad=True,
               divisor_override=None):  # fmt: skip
    return avg_pool(op, self, 2, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def avg_pool3d(op, self, kernel_size, stride=(), padding=(0,), ceil_mode=False, count_include_pad=True,
               divisor_override=None):  # fmt: skip
    return avg_pool(op, self, 3, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def roll(op, self, shifts, dims=()):
    """By indices modulo the size of a dim, so that it may be shifted by more than that."""
    if not dims:
        return op.Reshape(roll(op, op.Reshape(self, [-1]), shifts, [0]), op.Shape(self))
    for shift, dim in zip(listed(shifts), listed(dims), strict=True):
        size = op.Gather(op.Shape(self), dim)
        places = op.Mod(op.Sub(op.Range(0, size, 1), shift), size)
        self = op.Gather(self, places, axis=dim)
    return self
