"""Imported by the fork server after all else: from now on it has processes below it to end before it ends itself."""

from conformance.worker.guard import end_in_order

end_in_order()
