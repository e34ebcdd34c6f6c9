"""Reports that people open, computed from the records of runs and from nothing else.

``html`` makes one page that opens from disk, ``markdown`` a summary for the page of a CI job, ``annotations`` the
lines that put failures beside the case files in a pull request; ``command`` writes all three. ``rows`` adds the
fields that records of other versions lack, ``clean`` makes text harmless to look at, ``words`` says a verdict,
``grid`` is the matrix as data, ``embed`` packs data into the page. No module here knows pytest, torch or a runtime.
"""
