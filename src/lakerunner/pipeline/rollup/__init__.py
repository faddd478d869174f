"""Points to windows of rollups, and these to coarser ones. docs/formats/rollups.md says what the rows mean.

`work.py` does it for segments, `fold.py` is the core, which does no I/O.
"""
