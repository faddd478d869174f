"""The files that stand beside a segment, and their builders: row groups in, the bytes of one file out.

Ingest, merges and rollups write segments by the same builders (pipeline/write.py); pipeline/signals.py has the table of
which files each signal has.
"""
