"""What networks do in a loop of their user's, and what makes networks that no constructor takes small arguments for."""

import torch
from torch import nn


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


class Packed(nn.Module):
    """A recurrent layer over packed sequences. PyTorch takes these from functions alone, never from a module."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        y, state = self.layer(packed)
        return nn.utils.rnn.pad_packed_sequence(y, batch_first=True)[0], state
