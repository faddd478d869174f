"""Compile a query to Spark's SQL, where its meaning is known to be the same. No I/O."""

from lakerunner.lakeql.spark.translate import compile_spark

__all__ = ["compile_spark"]
