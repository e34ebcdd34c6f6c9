"""Imported by the fork server after all else: from now on it has processes below it to end before it ends itself."""

import gc
import sys

from conformance.process.worker import uses
from conformance.process.worker.guard import end_in_order
from conformance.process.worker.state import judging, patched_functions, registries

uses.settle()
uses.watch_libraries()  # before it is remembered what PyTorch holds
if "onnx" in sys.modules:
    registries.count_schemas()
judging.remember()
patched_functions.remember()
registries.remember()
gc.freeze()
end_in_order()
