"""The files of a segment: the Parquet file, its encodings, and the builders of the side files beside it.

Ingest, merges and rollups write segments by the same writer and builders; the table in pipeline/signals.py lists the
side files of each signal.
"""
