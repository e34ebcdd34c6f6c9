"""The smallest PyTorch function that an exporter gets wrong.

``program`` makes functions of calls in a captured program, with PyTorch's own values at them; ``search`` chooses the
calls, sizes and values; ``lines`` has a function, its export and its run as lines of Python, which ``trial`` executes
and ``written`` makes a script of, so that what was tried is what is written.
"""
