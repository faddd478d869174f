"""Query tags of Loki's clients (header X-Query-Tags: `Source=grafana,panel=7`): logged with the query.

Grafana's Logs Drilldown tags its queries with its name. It asks for every value of a label that it knows nothing of, so
its answers are cut at the limit of series, with a warning, instead of refused.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import replace

from lakerunner.api.query_service import QueryRequest
from lakerunner.logql.metric_finish import first_series
from lakerunner.query.series_answer import StepGroup
from lakerunner.series.values import Vector

HEADER = "x-query-tags"
MAX_CHARACTERS = 1024
DRILLDOWN = "grafana-lokiexplore-app"
_UNSAFE = re.compile(r"[^a-zA-Z0-9\-=, ]+")
_logger = logging.getLogger("lakerunner.api.loki")


def query_tags(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the tags by their names in lower case, cleaned as Loki does: other characters become `_`."""
    text = _UNSAFE.sub("_", headers.get(HEADER, "")[:MAX_CHARACTERS])
    pairs = (part.partition("=") for part in text.split(","))
    return {name.strip().lower(): value.strip() for name, equals, value in pairs if equals and name.strip()}


def is_drilldown(headers: Mapping[str, str]) -> bool:
    return query_tags(headers).get("source", "").lower() == DRILLDOWN


def log_tags(asked: QueryRequest) -> None:
    if tags := query_tags(asked.http.headers):
        text = ",".join(f"{name}={value}" for name, value in tags.items())
        _logger.info("query of organization %s with tags %s", asked.organization, text)


def cut_series(group: StepGroup, most: int) -> tuple[StepGroup, list[str]]:
    """Return at most this many series, and a warning if there are more."""
    if not isinstance(group.value, Vector) or len(group.value) <= most:
        return group, []
    warning = f"maximum number of series ({most}) reached for a single query; returning partial results"
    return replace(group, value=first_series(group.value, most)), [warning]
