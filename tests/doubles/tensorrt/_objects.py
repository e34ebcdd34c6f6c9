"""Values, messages and what users extend. Public names must be recorded, with the recorded parameters."""

import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np


class Dims:
    def __init__(self, shape: Any = ()) -> None:
        self._values = [int(one) for one in shape]

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, arg0: Any) -> Any:
        return tuple(self._values[arg0]) if isinstance(arg0, slice) else self._values[arg0]

    def __eq__(self, arg0: Any) -> bool:
        return tuple(self._values) == tuple(arg0)

    def __repr__(self) -> str:
        return f"({', '.join(map(str, self._values))}{',' if len(self._values) == 1 else ''})"

    __str__ = __repr__


class DataType:
    @property
    def itemsize(self) -> float:
        small = {"HALF": 2, "BF16": 2, "INT8": 1, "BOOL": 1, "UINT8": 1, "INT64": 8}
        return small.get(self.name, 4)  # type: ignore[attr-defined]


class ILogger:
    def __init__(self) -> None:
        pass

    def log(self, severity: Any, msg: str) -> None:
        raise RuntimeError('Tried to call pure virtual function "ILogger::log"')


class Logger:
    min_severity = None

    def __init__(self, min_severity: Any = None) -> None:
        self.min_severity = ILogger.Severity.WARNING if min_severity is None else min_severity

    def log(self, severity: Any, msg: str) -> None:
        if int(severity) <= int(self.min_severity):
            print(f"[TRT] [{severity.name[0]}] {msg}", file=sys.stderr, flush=True)


class IHostMemory(bytes):
    """Offers its bytes as a buffer; of what ``bytes`` can do, nothing else."""

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_") and name not in ("nbytes",):
            raise AttributeError(f"'tensorrt.tensorrt.IHostMemory' object has no attribute '{name}'")
        return object.__getattribute__(self, name)

    __len__ = __iter__ = __getitem__ = __contains__ = __add__ = __mul__ = None  # type: ignore[assignment]

    @property
    def nbytes(self) -> int:
        return memoryview(self).nbytes


class IOutputAllocator:
    def __init__(self) -> None:
        pass


class IDebugListener:
    def __init__(self) -> None:
        pass

    def process_debug_tensor(self, addr: int, location: Any, type: Any, shape: Any, name: str, stream: int) -> None:
        raise RuntimeError('Tried to call pure virtual function "IDebugListener::process_debug_tensor"')


class IProfiler:
    def __init__(self) -> None:
        pass

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        raise RuntimeError('Tried to call pure virtual function "IProfiler::report_layer_time"')


class IPluginRegistry:
    def load_library(self, plugin_path: str) -> Any:
        """A handle; None where the library is not there, or has plugins that are registered already."""
        if plugin_path in _libraries or not Path(plugin_path).is_file():
            return None
        _libraries.append(plugin_path)
        return object()


def get_plugin_registry() -> Any:
    return IPluginRegistry.make()


_libraries: list[str] = []
_plugins_log_to: list[Any] = []


def init_libnvinfer_plugins(logger: Any, namespace: str) -> bool:
    """The plugins keep a bare pointer to the logger, which they follow whenever they have something to say."""
    if _plugins_log_to and _plugins_log_to[-1]() is None:
        raise RuntimeError("the plugins' pointer to their logger leads nowhere: it was not kept")
    _plugins_log_to.append(weakref.ref(logger))
    return True


def nptype(trt_type: Any) -> Any:
    types = {"FLOAT": np.float32, "HALF": np.float16, "INT8": np.int8, "INT32": np.int32, "INT64": np.int64,
             "BOOL": np.bool_, "UINT8": np.uint8}  # fmt: skip
    if trt_type.name not in types:
        raise TypeError("Could not resolve TensorRT datatype to an equivalent numpy datatype.")
    return types[trt_type.name]
