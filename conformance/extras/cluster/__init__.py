"""Running cells on other machines, with Dask's distributed as the engine that hands them out.

A ``Cluster`` (``coordinator.py``), in the process of the tests, gives each case to Dask as one task (``tasks.py``). A
worker that is fit for it (``admission.py``, which asks ``host_facts.py``) lays out the files that came along
(``freight.py``) and has a process below it (a ``Host``) run the cells as everywhere, each in a process that
may die (``serving.py``).
"""
