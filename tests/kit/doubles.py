"""TensorRT and pycuda of whole runs: doubles, with faults of their own in every process."""

import os
from pathlib import Path

DOUBLES = Path(__file__).parent.parent / "doubles"

_FIRST = """
import os
os.environ |= {variables!r}
__file__ = {file!r}
with open(__file__) as file:
    exec(compile(file.read(), __file__, "exec"))
"""


def search_doubles(folder: Path, **variables: str) -> str:
    """PYTHONPATH of a run in which TensorRT and pycuda are doubles that see these environment variables.

    A worker is forked from a server that was started with another environment, so the variables are set where the
    doubles are imported: by a module below ``folder`` that stands before the one that both import first.
    """
    place = folder / "-".join(["doubles", *variables.values()])
    place.mkdir(parents=True, exist_ok=True)
    text = _FIRST.format(variables=variables, file=str(DOUBLES / "recorded.py"))
    (place / "recorded.py").write_text(text, encoding="utf-8")
    return os.pathsep.join([str(place), str(DOUBLES)])
