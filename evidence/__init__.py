"""What the suite finds, whom it names and what it misses, counted: a page of ``docs/evidence`` for each command.

``python -m evidence NAME`` makes one. The defects that are planted for it lie in ``tests/plants``. It prints rows as
``benchmarks`` does, which measures seconds and memory, and imports nothing from here.
"""
