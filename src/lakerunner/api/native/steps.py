"""What a request to /api/v1/metrics/query asks: PromQL, its time, its step, and the form of its answer, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakerunner.api.time_range import time_range
from lakerunner.model.errors import UserError
from lakerunner.model.time import MS_NS
from lakerunner.promql.plan import PromqlQuestion
from lakerunner.series.values import Steps

MAX_POINTS = 11_000
FORMS = ("sse", "json")
_SECONDS = (1, 5, 10, 30, 60, 120, 300, 600, 1200, 3600, 2 * 3600, 6 * 3600, 12 * 3600, 86_400)
_POINTS = 400  # about as many as a graph is wide
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_STEP = re.compile(r"([0-9]{1,12})(ms|[smhdw])?")


@dataclass(frozen=True)
class PromqlAsked:
    """`events`: as server-sent events, otherwise as one JSON object. `explain`: the answer's last word tells which
    tiers were read."""

    question: PromqlQuestion
    events: bool
    explain: bool = False

    @classmethod
    def of(cls, body: Mapping[str, Any], accept: str, now_ns: int) -> PromqlAsked:
        text = body.get("q")
        if not isinstance(text, str) or not text.strip():
            raise UserError('the body must be {"q": "rate(http_requests_total[5m])", ...}: `q` is not PromQL')
        if body.get("summary"):
            raise UserError("summary is not supported (/api/v1/features: metricsSummarySSE is false)")
        events, instant = _form(body, accept) == "sse", flag(body, "instant", default=False)
        partial = flag(body, "partial", default=events)
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
        )
        return cls(question, events, flag(body, "explain", default=False))


def usual_step(range_ms: int) -> int:
    """ms: the shortest of the round ones that gives no more points than a graph shows."""
    return next((1000 * s for s in _SECONDS if range_ms <= 1000 * s * _POINTS), -(-range_ms // _POINTS))


def _steps(body: Mapping[str, Any], now_ns: int, *, instant: bool) -> Steps:
    """From `s` on, up to `e`; an instant is at `e`."""
    time = time_range(body, now_ns)
    start, end = -(-time.start_ns // MS_NS), time.end_ns // MS_NS
    if instant or end < start:
        return Steps(end, end)
    step = step_in(body.get("step")) or usual_step(end - start)
    if (end - start) // step > MAX_POINTS:
        raise UserError(f"a step of {step} ms gives more than {MAX_POINTS} points in this time: use a longer step")
    return Steps(start, end, step)


def step_in(given: object) -> int | None:
    """In ms; a number is in seconds."""
    if given in (None, ""):
        return None
    found = _STEP.fullmatch(str(given)) if isinstance(given, int | str) and not isinstance(given, bool) else None
    ms = int(found[1]) * _UNITS_MS[found[2] or "s"] if found else 0
    if not ms:
        raise UserError(f"step must be seconds, or 500ms, 15s, 5m, 1h, 1d, not {str(given)[:60]!r}")
    return ms


def flag(body: Mapping[str, Any], name: str, *, default: bool) -> bool:
    given = body.get(name)
    if given is not None and not isinstance(given, bool):
        raise UserError(f"`{name}` must be true or false")
    return default if given is None else given


def _form(body: Mapping[str, Any], accept: str) -> str:
    """Events, unless JSON is named: by `format`, or as the one thing that is accepted."""
    given = body.get("format")
    if given is None:
        return "json" if accept.partition(";")[0].strip().lower() == "application/json" else "sse"
    if given not in FORMS:
        raise UserError(f"`format` must be one of {', '.join(FORMS)}")
    return str(given)
