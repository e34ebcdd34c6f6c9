"""A process that may die, and what outlives it.

``isolation`` calls workers and tells how they died; ``worker_process`` is one worker as its parent sees it,
``serve`` what runs in it, ``wire`` the messages between them. They share ``progress_note``, a note of what comes
next, and ``output``, the file behind stdout and stderr. ``memory`` measures one limit, the ``Clock`` of
``isolation`` the other. ``server`` keeps the fork server, ``guard`` is what that does when its parent is gone,
``children`` ends what is below a process. ``warm`` says what a worker for cells has imported, ``preload`` imports it
once for all of them.
"""
