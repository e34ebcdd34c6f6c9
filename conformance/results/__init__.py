"""What is known after a run: records, baselines, reports."""
