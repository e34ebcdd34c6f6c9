"""Records, baselines and reports: all that is known after a run."""
