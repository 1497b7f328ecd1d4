"""Experiments over many runs: `compare`."""
