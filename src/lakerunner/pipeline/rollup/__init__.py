"""Fold points into buckets of rollups, and these into coarser ones (docs/formats/rollups.md).

`fold.py` is the core, which does no I/O; pipeline/rollup_job.py runs it.
"""
