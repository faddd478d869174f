"""The operators that workers know. A new one is a file of its own and a line here (docs/guides/add-an-operator.md)."""

from __future__ import annotations

from collections.abc import Mapping

from lakerunner.logql.log_lines import LogLines
from lakerunner.logql.log_patterns import LogPatterns
from lakerunner.logql.log_samples import LogSamples
from lakerunner.logql.part_samples import PartSamples, RowsAreOnce
from lakerunner.logql.stream_list import LogStreams
from lakerunner.plan.operator import Operator, SqlRows
from lakerunner.promql.operators import FetchSamples, SeriesFragment
from lakerunner.query.metrics.list_series import ListSeries

OPERATORS: Mapping[str, type[Operator]] = {
    one.name: one
    for one in (
        SqlRows,  # rows of a SELECT
        SeriesFragment,  # a part of a PromQL expression
        FetchSamples,  # samples as they are
        LogLines,  # lines of a log query
        LogSamples,  # samples of a range aggregation over lines
        PartSamples,  # samples of a range aggregation over lines, from points that a rule made of them
        RowsAreOnce,  # whether the lines behind such points are there once
        LogStreams,  # streams with their sizes
        LogPatterns,  # lines by fingerprint
        ListSeries,  # series, labels, metadata, exemplars, sketches
    )
}
