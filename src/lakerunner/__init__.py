"""Lakerunner: a telemetry lake on object storage, Spark, PostgreSQL and DuckDB."""
