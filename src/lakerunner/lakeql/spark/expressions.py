"""Every kind of expression that can be written for Spark: the table of its writers."""

from __future__ import annotations

from lakerunner.lakeql.spark.arithmetic import ARITHMETIC
from lakerunner.lakeql.spark.calls import CALLS
from lakerunner.lakeql.spark.logic import LOGIC
from lakerunner.lakeql.spark.windows import WINDOWS
from lakerunner.lakeql.spark.writer import Writers

WRITERS: Writers = {**LOGIC, **ARITHMETIC, **CALLS, **WINDOWS}
