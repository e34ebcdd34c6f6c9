"""Imported by that server after ``preload``, where processes forked from it are to export with dynamo at once."""

from conformance.process.worker.warm import FOR_DYNAMO, import_once

import_once(FOR_DYNAMO)
