"""Measure how fast a runtime is, without failing by chance.

It is compared with another one or with a number of seconds.

``measure_latency`` runs both sides in turn and gives the verdict on a budget, by what ``statistics`` says that the
samples show. ``host_speed`` says what was measured on, ``latency_store`` keeps all of it for a record and for
pytest-benchmark. ``docs/latency.md`` has the method and the measurements behind it; ``case.files.time_budget`` reads
budgets.
"""
