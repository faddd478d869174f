"""PromQL as series/evaluation/ evaluates it. Ticks are milliseconds."""

from __future__ import annotations

from lakerunner.model.time import MS_NS
from lakerunner.promql.functions import FUNCTIONS
from lakerunner.promql.selection.notes import WORDS
from lakerunner.promql.selection.selectors import instant, ranged, reach
from lakerunner.promql.selection.staleness import latest_index, latest_of_buckets
from lakerunner.series.language import Instants, Language

LOOKBACK_MS = 300_000
SUBQUERY_STEP_MS = 60_000

PROMQL = Language(
    FUNCTIONS,
    MS_NS,
    WORDS,
    SUBQUERY_STEP_MS,
    Instants(LOOKBACK_MS, instant, latest_index, latest_of_buckets),
    ranged,
    reach,
)
