"""Imported by that server in place of ``preload``, where its workers run cells of ONNX files alone."""

from conformance.process.worker.warm import FOR_FILES, import_once

import_once(FOR_FILES)
