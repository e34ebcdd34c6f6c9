"""Reports that people open, computed from the records of runs and from nothing else.

``html`` makes one page that opens from disk, ``markdown`` a summary for the page of a CI job, ``annotations`` the
lines that put failures beside the case files in a pull request, and SARIF; ``command`` writes all of them.
``record_rows`` adds the fields that records of other versions lack, ``verdict_words`` says a verdict. No module here
knows pytest, torch or a runtime.
"""
