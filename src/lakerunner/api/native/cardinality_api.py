"""What a request to /api/v1/metrics/cardinality asks, checked, and its answer as JSON (docs/formats/native_api.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakerunner.api.formats.format import closing
from lakerunner.api.native.lookup import MAX_LISTED
from lakerunner.api.native.steps import step_in
from lakerunner.api.time_range import time_range
from lakerunner.model.errors import UserError
from lakerunner.model.hll import RELATIVE_ERROR
from lakerunner.model.tier import TIER_NAMES, TIERS
from lakerunner.model.time import MS_NS, iso_time
from lakerunner.query.metrics.answer import Cardinality, CardinalityQuestion

DEFAULT_METRICS = 100
_WINDOWS = 48  # about as many as one looks at
_FLAGS = {"": False, "0": False, "false": False, "1": True, "true": True}


def cardinality_question(given: Mapping[str, str], now_ns: int) -> CardinalityQuestion:
    time = time_range(given, now_ns, ("start", "end"))
    start, end = time.start_ns // MS_NS, -(-time.end_ns // MS_NS)
    labels = _FLAGS.get(given.get("labels", "").lower())
    if labels is None:
        raise UserError("labels must be 1 or 0")
    return CardinalityQuestion(
        given.get("metric", ""),
        start,
        end,
        step_in(given.get("step")) or usual_width(end - start),
        now_ns,
        labels,
        _limit(given.get("limit", "")),
    )


def usual_width(range_ms: int) -> int:
    """ms: the narrowest tier of not too many windows."""
    return next((tier for tier in TIERS if range_ms <= tier * _WINDOWS), TIERS[-1])


def cardinality_json(question: CardinalityQuestion, found: Cardinality) -> dict[str, Any]:
    said = {
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
        said["labels"] = [
            {"label": one.label, "of": one.whose, "values": one.values, "exact": one.exact} for one in found.labels
        ]
    return said | closing(found.account)


def _limit(text: str) -> int:
    if not text:
        return DEFAULT_METRICS
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= MAX_LISTED) or len(text) > 9:
        raise UserError(f"limit must be a number of metrics from 1 to {MAX_LISTED:,}, not {text[:60]!r}")
    return int(text)
