"""Points to buckets of rollups, and these to coarser ones. docs/formats/rollups.md says what the rows mean.

`job.py` is the Spark job, `work.py` what a task of it does; `fold.py` is the core, which does no I/O.
"""
