"""Model the ``steps`` of a case: a decoder run token by token, and the outputs that it takes again."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import Field

from conformance.case.files.field_types import Says, TensorName

Going: TypeAlias = Literal["same", "count", "filled", "ones", "repeat", "drawn"]


class Steps(Says):
    """Run the model once on what is drawn, and then step by step, with one token and what it returned before."""

    count: int = Field(ge=1, le=256)
    """Number of steps that follow the first run."""
    feed: dict[TensorName, TensorName] = {}
    """By input the output that it takes in the next step: ``{past_key: present_key}``. Those that are called past and
    present alike need no saying."""
    token: dict[TensorName, TensorName] | None = Field(None, max_length=1)
    """The input that takes the token which the output makes the likeliest, in PyTorch: ``{tokens: logits}``. An
    output ``logits`` needs no saying; ``{}`` is for none, and values are drawn for each step."""
    next: dict[TensorName, Going] = {}
    """Other inputs stay the ``same``, ``count`` on (positions), count what is ``filled`` of a cache, grow by ``ones``
    (masks), ``repeat`` last values or are ``drawn``. Those called mask, pos, write_indices or nonpad, or without a
    changing dim, need no saying."""
    reorder: bool = False
    """Between steps, put the rows of the batch in another order, as a beam search does."""
    at_once: bool = True
    """In PyTorch, all tokens at once have to give what they give step by step; false where that is not meant, as with
    a window over the past."""


def spell_out_steps(value: object) -> object:
    """Return ``steps: 8`` as the mapping that it stands for."""
    return {"count": value} if isinstance(value, int) and not isinstance(value, bool) else value
