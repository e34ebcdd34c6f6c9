"""Model the key ``samples``: cases made of the samples that PyTorch tests its own operators with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field

from conformance.case.files.field_types import Listed, Says
from conformance.case.samples.told import LeftOut, OfOperator, ask
from conformance.process.errors import did_you_mean, shown

EACH = 2
"""Samples of an operator, unless a case says how many."""
MOST = 64
"""Samples of an operator that a case may ask for: nothing else of PyTorch's has a hundred that are unlike."""
GIVEN = ("forward", "module", "onnx", "inputs", "dims", "where", "draw", "trace", "vary", "submodule", "script")
"""Keys that samples stand for, or that would be about a module."""


class FromSamples(Says):
    """Take calls of operators from the tests of the PyTorch that is installed, each as a case: ``forward``,
    ``inputs`` and ``dims`` are the sample's, ``operator`` and ``sample`` are varied values of it."""

    from_: Literal["torch.op_db"] = Field("torch.op_db", alias="from")
    """The source of the samples: ``torch.op_db``, PyTorch's table of its operators, in float32 unless ``dtypes``
    grow."""
    only: Listed[str] = ["*"]
    """Patterns of operators' names, as in ``nn.functional.*``; a variant stands behind a point."""
    but: Listed[str] = []
    """Patterns of names that are left out again."""
    each: int = Field(EACH, ge=1, le=MOST)
    """How many samples of an operator, spread over those that differ in more than values."""
    grow: Listed[Literal["sizes", "values", "arguments", "dtypes", "negative", "signature"]] = []
    """Variations beyond the samples: ``sizes`` by dims, ``values`` by all that the dtype has, ``arguments`` by
    samples with others, ``dtypes`` by integers and booleans, ``negative`` by a dim from the end, ``signature`` by
    calls that no sample has."""


def sampled(samples: FromSamples, said: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what each case says: that which is said of all, with a sample. Raises ValueError where no operator has
    such a name, where none of them is a case, or where a key stands beside ``samples`` that it gives."""
    for key in GIVEN:
        if key in said:
            raise ValueError(f"samples give each case its call, so that there is nothing to say under {key}")
    answer = ask((*samples.only,), (*samples.but,), samples.each, (*samples.grow,))
    if not answer.told:
        near = did_you_mean(samples.only[0], answer.operators) if samples.only else ""
        raise ValueError(f"no operator of torch.op_db is called {', '.join(map(shown, samples.only))}{near}")
    given = [one for one in answer.told if isinstance(one, OfOperator)]
    if not given:
        first = next(one for one in answer.told if isinstance(one, LeftOut))
        raise ValueError(f"no sample of these operators is a case; of {first.operator}: {first.why}")
    for one in given:
        yield {**said, **one.said, "vary": {"operator": [one.operator], "sample": [one.number]}}
