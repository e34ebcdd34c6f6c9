"""The smallest model that still fails, and the smallest PyTorch function that an exporter gets wrong.

``model_trial`` says whether a model of some nodes fails as the whole did, ``smallest`` chooses nodes and names,
``simpler_arrays`` shapes and values, and ``model_script`` writes a script and an issue about what is left, by the
template in ``reproduction``. Functions are found likewise:

``extracted_function`` makes functions of calls in a captured program, with PyTorch's own values at them;
``smallest_function`` chooses the calls; ``lines`` has a function, its export and its run as lines of
Python, which ``function_trial`` executes and ``function_script`` makes a script of, so that what was tried is what
is written.
"""
