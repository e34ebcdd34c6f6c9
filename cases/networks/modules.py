"""What users of networks do around them, and what keeps random detectors at scale."""

import re

import torch
from torch import nn
from torchvision.models.video.resnet import BasicBlock, BasicStem, Conv3DSimple, VideoResNet


class Greedy(nn.Module):
    """The tokens that a language model writes, each the likeliest one, with the logits that it was chosen by.

    The cache of a step goes into the next one, which is fed the new token alone.
    """

    def __init__(self, model, steps):
        super().__init__()
        self.model = model
        self.steps = steps

    def forward(self, prompt):
        tokens, rows, past, new = [], [], None, prompt
        for _ in range(self.steps):
            answer = self.model(input_ids=new, past_key_values=past, use_cache=True)
            past = answer.past_key_values
            row = answer.logits[:, -1]
            new = row.argmax(-1, keepdim=True)
            tokens.append(new)
            rows.append(row)
        return torch.cat(tokens, 1), torch.stack(rows, 1)


class TinyDecoder(nn.Module):
    """A language model as they are built today, small: rotary positions after those of the past, two heads to a key,
    and a cache that it takes and returns longer, the layers along its first axis."""

    def __init__(self, layers=2, heads=2, wide=16, vocabulary=50):
        super().__init__()
        self.heads, self.size = heads, wide // heads
        self.embedding, self.head = nn.Embedding(vocabulary, wide), nn.Linear(wide, vocabulary)
        self.norms = nn.ModuleList(nn.LayerNorm(wide) for _ in range(layers))
        self.queries, self.out = (nn.ModuleList(nn.Linear(wide, wide) for _ in range(layers)) for _ in range(2))
        self.keys, self.values = (nn.ModuleList(nn.Linear(wide, self.size) for _ in range(layers)) for _ in range(2))

    def forward(self, tokens, past_key, past_value):
        past, new = past_key.shape[3], tokens.shape[1]
        places, every = torch.arange(new) + past, torch.arange(past + new)
        angles = places[:, None] * 10000.0 ** -torch.linspace(0, 1, self.size // 2)
        x, keys, values = self.embedding(tokens), [], []
        for layer, norm in enumerate(self.norms):
            y = norm(x)
            query, key, value = (linear[layer](y).unflatten(-1, (-1, self.size)).transpose(1, 2)
                                 for linear in (self.queries, self.keys, self.values))  # fmt: skip
            keys.append(torch.cat([past_key[layer], rotated(key, angles)], 2))
            values.append(torch.cat([past_value[layer], value], 2))
            shared = (each.expand(-1, self.heads, -1, -1) for each in (keys[layer], values[layer]))
            seen = nn.functional.scaled_dot_product_attention(
                rotated(query, angles), *shared, attn_mask=every <= places[:, None]
            )
            x = x + self.out[layer](seen.transpose(1, 2).flatten(2))
        return self.head(x), torch.stack(keys), torch.stack(values)


def rotated(x, angles):
    """Pairs of values turned by angles, as rotary embeddings do."""
    first, second = x.chunk(2, -1)
    return torch.cat([first * angles.cos() - second * angles.sin(), first * angles.sin() + second * angles.cos()], -1)


class Packed(nn.Module):
    """A recurrent layer over packed sequences. PyTorch takes these from functions alone, never from a module."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        y, state = self.layer(packed)
        return nn.utils.rnn.pad_packed_sequence(y, batch_first=True)[0], state


def small_r3d():
    """R3D-18 with one block in each layer in place of two; its constructor takes classes, which YAML has not."""
    return VideoResNet(BasicBlock, [Conv3DSimple] * 4, [1, 1, 1, 1], BasicStem, num_classes=5)


LAST_LAYERS = {
    r"\.(cls_logits|cls_score)$|classification_head\.module_list\.\d+\.1$": 0.5,  # what scores are made of
    r"\.(bbox_reg|bbox_pred)$|regression_head\.module_list\.\d+\.1$": 0.3,  # what moves boxes
}
"""How far the outputs of the last layers of torchvision's detectors are to be spread, by patterns of their names."""


def calm(module):
    """Keeps what a random convolutional network adds from block to block small, and gives frozen norms statistics.

    Otherwise rounding grows from block to block, until few digits of PyTorch's own float32 are right, and a frozen
    norm subtracts a mean of zero, which could as well be left out.
    """
    _settle(module, torch.randn(4, 3, 64, 64, generator=torch.Generator().manual_seed(0)))


def at_scale(module):
    """Keeps a random detector at a scale at which its scores differ.

    A detector's batch norms are frozen, and pass on what grows from layer to layer: the scores of a random one are
    all within rounding of 1, and which boxes are kept is chance. So the norms get the statistics of a random image,
    and the last layers are scaled so that scores are told apart.
    """
    spread = {}
    for name, layer in module.named_modules():
        for pattern, wanted in LAST_LAYERS.items():
            if re.search(pattern, name):
                spread[layer] = wanted

    def scale(layer, inputs, output):
        wanted = spread.pop(layer, None)
        if wanted is None:
            return None
        factor = wanted / output.std()
        layer.weight.mul_(factor)
        if layer.bias is not None:
            layer.bias.mul_(factor)
        return output * factor

    hooks = [layer.register_forward_hook(scale) for layer in spread]
    _settle(module, [torch.randn(3, 96, 96, generator=torch.Generator().manual_seed(0))])
    for hook in hooks:
        hook.remove()


def _settle(module, images):
    """Gives batch norms the statistics of the images; those that are not frozen get a quarter of their weight."""

    def settle(norm, inputs):
        (x,) = inputs
        norm.running_mean.copy_(x.mean((0, 2, 3)))
        norm.running_var.copy_(x.var((0, 2, 3), correction=0) + 0.1)
        if isinstance(norm, nn.BatchNorm2d):
            norm.weight.mul_(0.25)

    norms = [layer for layer in module.modules() if hasattr(layer, "running_var")]  # torchvision's, transformers' too
    hooks = [norm.register_forward_pre_hook(settle) for norm in norms]
    with torch.no_grad():
        module.eval()(images)
    for hook in hooks:
        hook.remove()
