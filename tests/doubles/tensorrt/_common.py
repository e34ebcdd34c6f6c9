"""Which version the double is of, and how it says what is wrong, in the words of TensorRT 8.6's libraries."""

import os
from typing import Any

import device_memory as _memory
import recorded

VERSIONS = ("8.6", "10.12", "11.0")
ASKED = os.environ.get("CONFORMANCE_DOUBLE_TENSORRT", VERSIONS[0])
VERSION = next((one for one in VERSIONS if f"{ASKED}.".startswith(f"{one}.")), "")
if not VERSION:
    raise ImportError(f"CONFORMANCE_DOUBLE_TENSORRT={ASKED}: there are recordings of {', '.join(VERSIONS)}")
MAJOR = int(VERSION.split(".")[0])
RECORDING = recorded.load(f"tensorrt-{VERSION}.json")
OTHERS = [recorded.load(f"tensorrt-{one}.json") for one in VERSIONS if one != VERSION]
TAG = f"TensorRT double {RECORDING['version']}\n".encode()


class TooEarly(BaseException):
    """Something is made of TensorRT before a builder was asked whether CUDA starts."""


def check_driver(owner: Any) -> None:
    """Fails as TensorRT does where CUDA does not start; tried with the real 8.6.0 on a host without a driver."""
    code = 100 if _memory.faulty("nogpu") else 35 if _memory.faulty("olddriver") else 0
    if code:
        say(owner, "WARNING", f"CUDA initialization failure with error: {code}. Please check your CUDA installation")
        if MAJOR == 8 and type(owner).__name__ == "Runtime":
            raise TooEarly("ask a builder first, which says by an error that CUDA does not start")
        raise TypeError("pybind11::init(): factory function returned nullptr")


def say(owner: Any, severity: str, text: str) -> None:
    """To the logger."""
    import tensorrt as api

    owner._logger.log(getattr(api.ILogger.Severity, severity), text)


def complain(owner: Any, place: str, number: int, text: str) -> None:
    name = "API Usage Error" if number == 3 else "Internal Error"
    say(owner, "ERROR", f"{number}: [{place}] Error Code {number}: {name} ({text})")
