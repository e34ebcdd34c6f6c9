"""How fast a runtime is, against another one or against a number of seconds, without failing by chance.

``budget`` reads what a case declares, ``measure`` runs both sides in turn, ``statistics`` judges, ``host`` says
what it was measured on, ``store`` keeps it for a record and for pytest-benchmark. ``docs/latency.md`` has the
method and the measurements behind it.
"""
