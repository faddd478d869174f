"""Frozen domain values. They refuse nonsense at birth and do no I/O."""
