"""Compile SQL over the lake to a plan. No I/O. `lakeql.spark` compiles the same query for Spark."""

from lakerunner.lakeql.compile import compile_sql

__all__ = ["compile_sql"]
