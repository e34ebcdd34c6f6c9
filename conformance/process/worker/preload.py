"""Imported once by the server that worker processes are forked from: all that they need, in their common memory."""

from conformance.process.worker.warm import MODULES, import_once

import_once(MODULES)
