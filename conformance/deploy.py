"""What a case says of the machine it is deployed to: how TensorRT's engines are built."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from conformance.errors import did_you_mean
from conformance.fields import Listed, Mebibytes, Says


class TensorRT(Says):
    """How engines are built. What is left out is TensorRT's own default, except for TF32."""

    opsets: Annotated[Listed[int], Field(min_length=1)] | None = None
    """Which of the exported models are run; the default is the highest opset of each exporter."""
    typical: dict[str, Annotated[int, Field(ge=0)]] = {}
    """The sizes that the engine is tuned for; dims left out are as in the export."""
    workspace: Mebibytes | None = None
    """Device memory that kernels may use, such as 512 MiB."""
    optimization_level: int | None = Field(None, ge=0, le=5)
    """How long the builder looks for faster kernels, 0 to 5."""
    tf32: bool = False
    """Allow TF32, which rounds fp32 to ten bits of mantissa; TensorRT would by itself."""
    hardware_compatibility: Literal["none", "ampere_plus"] = "none"
    """``ampere_plus``: an engine that runs on all GPUs since Ampere, not only on the one it is built on."""
    timing_cache: bool = True
    """Keep the timings of kernels beside the engines, so that the next build picks the same ones."""
    cuda_graph: bool = False
    """Launch the engine as one CUDA graph where its latency is measured."""
    plugins: Listed[str] = []
    """Plugin libraries beside the case file, or file.function that returns the path of one."""


_NOT_OF_A_RUN = {"opsets", "typical", "plugins"}


def builder_options(text: str) -> dict[str, Any]:
    """What a run says instead of its cases: ``optimization_level=5,workspace=1GiB``.

    Raises ValueError for a key that is not known or a value that does not fit.
    """
    given: dict[str, str] = {}
    known = TensorRT.model_fields.keys() - _NOT_OF_A_RUN
    for part in text.split(","):
        name, _, value = (word.strip() for word in part.partition("="))
        if name not in known:
            raise ValueError(f"there is no option '{name}'{did_you_mean(name, known)}")
        given[name] = value
    try:
        found = TensorRT.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(
            f"{'.'.join(map(str, first['loc']))}: {first['msg'].removeprefix('Value error, ')}"
        ) from None
    return found.model_dump(include=set(given))
