"""Parse requests to /api/v1/metrics/query (PromQL, time, step, format) and /api/v1/metrics/cardinality, and write the
answer of the latter. docs/formats/native_api.md describes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakerunner.api.formats.format import closing_fields
from lakerunner.api.native.lookup import MAX_LISTED
from lakerunner.api.time_range import time_range
from lakerunner.model.errors import UserError
from lakerunner.model.hll import RELATIVE_ERROR
from lakerunner.model.tier import TIER_NAMES, TIERS
from lakerunner.model.time import MS_NS, iso_time
from lakerunner.promql.plan import PromqlQuestion
from lakerunner.query.metric_answers import Cardinality, CardinalityQuestion
from lakerunner.query.options import read_engine
from lakerunner.series.values import Steps

MAX_POINTS = 11_000
FORMS = ("sse", "json")
_SECONDS = (1, 5, 10, 30, 60, 120, 300, 600, 1200, 3600, 2 * 3600, 6 * 3600, 12 * 3600, 86_400)
_POINTS = 400  # about the width of a graph
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_STEP = re.compile(r"([0-9]{1,12})(ms|[smhdw])?")
DEFAULT_METRICS = 100
_WINDOWS = 48  # about as many as a person reads
_FLAGS = {"": False, "0": False, "false": False, "1": True, "true": True}


@dataclass(frozen=True)
class MetricsRequest:
    """A parsed request. `events`: answer with server-sent events, otherwise with one JSON object. `explain`: the end of
    the answer lists the tiers that were read."""

    question: PromqlQuestion
    events: bool
    explain: bool = False

    @classmethod
    def parse(cls, body: Mapping[str, Any], accept: str, now_ns: int) -> MetricsRequest:
        text = body.get("q")
        if not isinstance(text, str) or not text.strip():
            raise UserError('the body must be {"q": "rate(http_requests_total[5m])", ...}: `q` is not PromQL')
        if body.get("summary"):
            raise UserError("summary is not supported (/api/v1/features: metricsSummarySSE is false)")
        events, instant = _form(body, accept) == "sse", boolean_field(body, "instant", default=False)
        partial = boolean_field(body, "partial", default=events)
        steps = _steps(body, now_ns, instant=instant)
        if body.get("tier") not in (None, "", "raw"):
            raise UserError("`tier` must be raw, or left out")
        question = PromqlQuestion(
            text,
            steps,
            instant,
            now_ns,
            partial=partial,
            streamed=events and not instant,
            raw=body.get("tier") == "raw",
            engine=read_engine(body.get("engine")),
        )
        return cls(question, events, boolean_field(body, "explain", default=False))


def default_step(range_ms: int) -> int:
    """Return the shortest round step, in ms, that gives no more points than a graph shows."""
    return next((1000 * s for s in _SECONDS if range_ms <= 1000 * s * _POINTS), -(-range_ms // _POINTS))


def _steps(body: Mapping[str, Any], now_ns: int, *, instant: bool) -> Steps:
    """Return the steps from `s` to `e`; only `e` for an instant query."""
    time = time_range(body, now_ns)
    start, end = -(-time.start_ns // MS_NS), time.end_ns // MS_NS
    if instant or end < start:
        return Steps(end, end)
    step = parse_step(body.get("step")) or default_step(end - start)
    if (end - start) // step > MAX_POINTS:
        raise UserError(f"a step of {step} ms gives more than {MAX_POINTS} points in this time: use a longer step")
    return Steps(start, end, step)


def parse_step(given: object) -> int | None:
    """Parse a step: seconds, or a number with a unit; return ms, None if it is missing."""
    if given in (None, ""):
        return None
    found = _STEP.fullmatch(str(given)) if isinstance(given, int | str) and not isinstance(given, bool) else None
    ms = int(found[1]) * _UNITS_MS[found[2] or "s"] if found else 0
    if not ms:
        raise UserError(f"step must be seconds, or 500ms, 15s, 5m, 1h, 1d, not {str(given)[:60]!r}")
    return ms


def boolean_field(body: Mapping[str, Any], name: str, *, default: bool) -> bool:
    """Return a field that must be true or false."""
    given = body.get(name)
    if given is not None and not isinstance(given, bool):
        raise UserError(f"`{name}` must be true or false")
    return default if given is None else given


def _form(body: Mapping[str, Any], accept: str) -> str:
    """Return the format: events, unless `format` or the first type of Accept is JSON."""
    given = body.get("format")
    if given is None:
        return "json" if accept.partition(";")[0].strip().lower() == "application/json" else "sse"
    if given not in FORMS:
        raise UserError(f"`format` must be one of {', '.join(FORMS)}")
    return str(given)


def cardinality_question(given: Mapping[str, str], now_ns: int) -> CardinalityQuestion:
    """Parse the query string of a request for cardinality."""
    time = time_range(given, now_ns, ("start", "end"))
    start, end = time.start_ns // MS_NS, -(-time.end_ns // MS_NS)
    labels = _FLAGS.get(given.get("labels", "").lower())
    if labels is None:
        raise UserError("labels must be 1 or 0")
    return CardinalityQuestion(
        given.get("metric", ""),
        start,
        end,
        parse_step(given.get("step")) or default_window(end - start),
        now_ns,
        labels,
        _limit(given.get("limit", "")),
    )


def default_window(range_ms: int) -> int:
    """Return the narrowest tier, in ms, that gives at most _WINDOWS windows."""
    return next((tier for tier in TIERS if range_ms <= tier * _WINDOWS), TIERS[-1])


def cardinality_json(question: CardinalityQuestion, found: Cardinality) -> dict[str, Any]:
    """Return the body of the answer."""
    body = {
        "step": question.step_ms,
        "windows": [
            {
                "end": iso_time(end * MS_NS),
                "tiers": [TIER_NAMES[tier] for tier in tiers],
                "over": end <= question.now_ms,
            }
            for end, tiers in found.windows
        ],
        "metrics": [
            {
                "metric": one.metric,
                "series": one.series,
                "now": one.now,
                "most": one.most,
                "by_window": list(one.by_window),
            }
            for one in found.metrics
        ],
        "relative_error": round(RELATIVE_ERROR, 4),
        "truncated": found.truncated,
    }
    if question.labels:
        body["labels"] = [
            {"label": one.label, "of": one.whose, "values": one.values, "exact": one.exact} for one in found.labels
        ]
    return body | closing_fields(found.account)


def _limit(text: str) -> int:
    if not text:
        return DEFAULT_METRICS
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= MAX_LISTED) or len(text) > 9:
        raise UserError(f"limit must be a number of metrics from 1 to {MAX_LISTED:,}, not {text[:60]!r}")
    return int(text)
