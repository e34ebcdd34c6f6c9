"""Functions with a backward of their own: what an exporter sees of torch.autograd.Function."""

import torch


class ClampedSwish(torch.autograd.Function):
    """clamp(x, min=0) / (1 + exp(-clamp(x, min=0))), with no word about ONNX."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        x = x.clamp(min=0)
        return x / (1 + torch.exp(-x))

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (x > 0) * (s + x * s * (1 - s))


class CustomOp(ClampedSwish):
    """The same, exported by the TorchScript exporter as one node of a custom domain."""

    @staticmethod
    def symbolic(g, x):
        return g.op("custom_domain::customOp2", x)


class Plain(torch.nn.Module):
    def forward(self, x):
        return ClampedSwish.apply(x)


class Custom(torch.nn.Module):
    def forward(self, x):
        return CustomOp.apply(x)
