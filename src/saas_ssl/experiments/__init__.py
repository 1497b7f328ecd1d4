"""Experiments over many runs: `compare`, and `reproduce` with a file for each figure."""
