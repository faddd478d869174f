"""SQL over the lake: text to plan. No I/O."""

from lakerunner.lakeql.compile import compile_sql

__all__ = ["compile_sql"]
