"""The same query in Spark's SQL, where its meaning is known to be the same. No I/O."""

from lakerunner.lakeql.spark.translate import spark_sql

__all__ = ["spark_sql"]
