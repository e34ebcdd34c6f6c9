"""The smallest PyTorch function that an exporter gets wrong.

``extracted_function`` makes functions of calls in a captured program, with PyTorch's own values at them;
``function_search`` chooses the calls, sizes and values; ``lines`` has a function, its export and its run as lines of
Python, which ``function_trial`` executes and ``function_script`` makes a script of, so that what was tried is what is
written.
"""
