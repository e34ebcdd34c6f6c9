"""LayerNorm kept as one node at opsets that have none."""

from torch.onnx.symbolic_helper import parse_args


@parse_args("v", "is", "v", "v", "f", "b")
def layer_norm(g, x, normalized_shape, weight, bias, eps, cudnn_enable):
    """One node of a domain of our own, in place of the nine or so that the exporter writes."""
    return g.op("custom::LayerNorm", x, weight, bias, axes_i=list(range(-len(normalized_shape), 0)), epsilon_f=eps)
