"""SQL over the lake: text to plan. No I/O."""

from lakerunner.lakeql.compile import compile_spark, compile_sql

__all__ = ["compile_spark", "compile_sql"]
