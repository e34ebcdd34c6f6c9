"""Symbolic functions for torchvision::deform_conv2d, which the TorchScript exporter does not know."""

import torchvision  # noqa: F401 - it registers its own operators with the exporter when it is imported
from torch.onnx import symbolic_helper
from torch.onnx.symbolic_helper import parse_args

_ARGUMENTS = ("v", "v", "v", "v", "v", "i", "i", "i", "i", "i", "i", "i", "i", "b")


@parse_args(*_ARGUMENTS)
def deform_conv2d(
    g, x, weight, offset, mask, bias,
    stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups, offset_groups, use_mask,
):  # fmt: skip
    """ONNX has had DeformConv since opset 19; it wants the bias before the mask."""
    inputs = [x, weight, offset, bias]
    if use_mask:  # without one, torchvision passes zeros of a shape of their own
        inputs.append(mask)
    return g.op(
        "DeformConv",
        *inputs,
        strides_i=[stride_h, stride_w],
        pads_i=[pad_h, pad_w, pad_h, pad_w],
        dilations_i=[dilation_h, dilation_w],
        group_i=groups,
        offset_group_i=offset_groups,
        kernel_shape_i=symbolic_helper._get_tensor_sizes(weight)[2:],
    )


@parse_args(*_ARGUMENTS)
def input_and_offset_only(g, x, weight, offset, *rest):
    """What a tutorial registers to get past the export: a node that has lost weight, mask and bias."""
    return g.op("custom::deform_conv2d", x, offset)
