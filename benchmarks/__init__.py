"""Seconds and memory: how fast the suite is, beside a bare script and what one would use instead.

``python -m benchmarks`` writes ``docs/benchmarks.md``; ``house`` and ``source`` count the structure of the package.
What the suite finds and misses is counted in ``evidence``, which nothing here imports.
"""
