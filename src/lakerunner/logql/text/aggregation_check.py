"""Check what an aggregation is given: its parameter, its grouping, and whether its range has unwrap.

Comes in: the parts as they were written. Goes out: the parameter as a number, and what is wrong in Loki's words, ""
if nothing is.
"""

from __future__ import annotations

import re

from lakerunner.logql.text.amounts import parse_float
from lakerunner.logql.text.syntax import Grouping, LogRange

QUANTILE = "quantile_over_time"
_WITH_PARAMETER = frozenset(("topk", "bottomk", "approx_topk"))
_LARGEST = (1 << 63) - 1
_GROUPED = frozenset(f"{op}_over_time" for op in ("avg", "stddev", "stdvar", "quantile", "max", "min", "first", "last"))
_UNWRAPPED = _GROUPED | {"sum_over_time", "rate", "rate_counter", "absent_over_time"}
_OF_LINES = frozenset(("bytes_over_time", "bytes_rate", "count_over_time", "rate", "absent_over_time"))


def check_range_aggregation(
    op: str, written: str | None, lines: LogRange, grouping: Grouping | None
) -> tuple[float | None, str]:
    """Return the parameter and what is wrong."""
    parameter = None
    if written is not None:
        if op != QUANTILE:
            return None, f"parameter {written} not supported for operation {op}"
        try:
            parameter = parse_float(written)
        except ValueError as error:
            return None, f"invalid parameter for operation {op}: {error}"
    elif op == QUANTILE:
        return None, f"parameter required for operation {op}"
    if grouping is not None and op not in _GROUPED:
        return parameter, f"grouping not allowed for {op} aggregation"
    if lines.unwrap and op not in _UNWRAPPED:
        return parameter, f"invalid aggregation {op} with unwrap"
    if not lines.unwrap and op not in _OF_LINES:
        return parameter, f"invalid aggregation {op} without unwrap"
    return parameter, ""


def check_vector_aggregation(op: str, written: str | None, grouping: Grouping | None) -> tuple[int | None, str]:
    """Return the parameter and what is wrong."""
    if op not in _WITH_PARAMETER:
        if written is not None:
            return None, f"unsupported parameter for operation {op}({written},"
        if op in ("sort", "sort_desc") and grouping is not None and grouping.labels:
            return None, "sort and sort_desc doesn't allow grouping by "
        return None, ""
    if written is None:
        return None, f"parameter required for operation {op}"
    if not re.fullmatch("[0-9]+", written) or len(written) > 19 or int(written) > _LARGEST:
        return None, f"invalid parameter {op}({written},"
    parameter = int(written)
    if parameter <= 0:
        return None, f"invalid parameter (must be greater than 0) {op}({written}"
    if op == "approx_topk" and grouping is not None:
        return parameter, f"grouping not allowed for {op} aggregation"
    return parameter, ""
