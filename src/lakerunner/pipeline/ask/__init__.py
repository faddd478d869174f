"""Queries that outgrow DuckDB's workers: whole SQL over picked segments, run by Spark."""
