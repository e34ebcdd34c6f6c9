"""Print what decides on the results of cells in an environment.

Python itself runs this on each worker of a cluster.

Prints one line of JSON. Needs neither torch nor pytest: on a host that runs bundles there is none.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import sys
from collections.abc import Iterable

from conformance.results.records.environment import code, gpu, versions
from conformance.results.records.host_conditions import installed_version
from conformance.results.records.processor import cpu
from conformance.runtimes import registry

RUNTIME = "runtime {}"
"""The word of a runtime that an environment has. The others are ``gpu``, and instruction sets of the processor as
``environment.cpu.instructions`` names them."""


def facts(packages: Iterable[str] = ()) -> dict[str, object]:
    """Describe this environment, with the versions of these distributions.

    Those that every run has are there too.
    """
    absences = {runtime.name: registry.absence(runtime.name) for runtime in registry.RUNTIMES}
    there = [RUNTIME.format(name) for name, absence in absences.items() if absence is None]
    return {
        "host": socket.gethostname(),
        "python": python(),
        "code": code(),
        "versions": versions(),
        "packages": {package: installed_version(package) for package in packages},
        "cpu": cpu(),
        "gpu": gpu(),
        "absences": absences,
        "words": [*(["gpu"] if gpu() else []), *cpu()["instructions"], *there],
        "platform": platform.platform(),
        **_seen_by_cells(),
    }


def python() -> str:
    """The version of Python, as far as what one writes another can read."""
    return ".".join(platform.python_version_tuple()[:2])


def _seen_by_cells() -> dict[str, object]:
    """Return what fingerprints take of a host, and hashes of what cells may read.

    Nothing where case files cannot be read, and nothing has fingerprints.
    """
    try:
        from conformance.models.kept.fingerprint import host
        from conformance.models.kept.observed_dependencies import FACTS, fact, variable
    except ImportError:
        return {"fingerprint": None, "variables": {}, "facts": {}}
    variables = {name: variable(name) for name in (*os.environ, "*")}
    return {"fingerprint": host(), "variables": variables, "facts": {name: fact(name) for name in FACTS}}


if __name__ == "__main__":
    print(json.dumps(facts(json.loads(sys.argv[1]))))
