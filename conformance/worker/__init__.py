"""A process that may die, and what outlives it.

``isolation`` starts workers, calls them and tells how they died; ``serve`` is what runs in a worker. They share
``progress``, a note of what comes next, and ``output``, the file behind stdout and stderr. ``clock`` measures a limit
on a busy host, ``warm`` says what a worker for cells has imported, ``preload`` imports it once for all of them.
"""
