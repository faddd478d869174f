"""`s` and `e` of the native API: what is a time, and what is refused with a word on what may stand there."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.api.time_range import DEFAULT_NS, time_range
from lakerunner.model.errors import UserError
from lakerunner.model.time import HOUR_NS, MIN_NS, SECOND_NS, TimeRange

NOW = 1_714_564_800_123_456_789  # 2024-05-01T12:00:00.123456789Z
NOON = 1_714_564_800 * SECOND_NS
DAY = 24 * HOUR_NS

TIMES: dict[Any, int] = {
    1_714_564_800: NOON,
    "1714564800": NOON,
    1_714_564_800_123: NOON + 123_000_000,
    "1714564800123": NOON + 123_000_000,
    "100000000": 100_000_000 * SECOND_NS,
    "100000000000": 100_000_000 * SECOND_NS,
    "2024-05-01T12:00:00Z": NOON,
    "2024-05-01T14:00:00.000000001+02:00": NOON + 1,
    "2024-05-01": NOON - 12 * HOUR_NS,
    " now ": NOW,
    "now-90s": NOW - 90 * SECOND_NS,
    "now-5m": NOW - 300 * SECOND_NS,
    "now-1h": NOW - HOUR_NS,
    "now-2d": NOW - 2 * DAY,
    "now-1w": NOW - 7 * DAY,
    "now+1h": NOW + HOUR_NS,
}


@pytest.mark.parametrize("value", TIMES)
def test_times(value: Any) -> None:
    if TIMES[value] > 200_000_000 * SECOND_NS:
        assert time_range({"s": "100000000", "e": value}, NOW) == TimeRange(100_000_000 * SECOND_NS, TIMES[value])
    assert time_range({"s": value, "e": "now+2h"}, NOW) == TimeRange(TIMES[value], NOW + 2 * HOUR_NS)


@pytest.mark.parametrize("body", [{}, {"s": "", "e": ""}, {"s": None, "e": None}])
def test_the_last_hour_where_nothing_is_stated(body: dict[str, Any]) -> None:
    assert time_range(body, NOW) == TimeRange(NOW - DEFAULT_NS, NOW)
    assert DEFAULT_NS == HOUR_NS


NOT_TIMES = [
    "17145648001",  # 11 digits are neither
    0,
    "0",
    False,
    "12345678",
    "1714564800123456",
    1_714_564_800.5,
    -1_714_564_800,
    "-1714564800",
    "1714564800.5",
    "\uff11" * 10,  # digits, but not ASCII
    True,
    ["now"],
    "now-1y",
    "now-h",
    "now - 1h",
    "now-1h-1h",
    "yesterday",
    "2024-02-30",
    "2024-05-01T25:00:00Z",
    "x" * 10_000,
]


@pytest.mark.parametrize("value", NOT_TIMES)
def test_what_is_no_time_is_refused_with_what_may_stand_there(value: Any) -> None:
    for name in ("s", "e"):
        with pytest.raises(UserError, match=rf"^{name} .* is not a time: write seconds \(9 or 10") as refused:
            time_range({"s": "now-1h", "e": "now", name: value}, NOW)
        assert len(refused.value.message) < 400


@pytest.mark.parametrize("value", ["9999999999", "9999-01-01", "1500-01-01", "now+999999999w"])
def test_a_time_that_no_timestamp_holds_is_refused(value: str) -> None:
    with pytest.raises(UserError, match="times range from 1677-09-21 to 2262-04-11"):
        time_range({"s": value, "e": "now"}, NOW)


@pytest.mark.parametrize(("start", "end"), [("now", "now"), ("now", "now-1h"), ("1714564800", "1714564800000")])
def test_a_range_must_not_be_empty(start: str, end: str) -> None:
    with pytest.raises(UserError, match="s must be before e"):
        time_range({"s": start, "e": end}, NOW)


def test_a_default_start_is_not_before_all_time() -> None:
    assert time_range({"e": "1677-09-21T00:20:00Z"}, NOW).start_ns == MIN_NS


@given(st.integers(100_000_000, 9_223_369_199))
def test_seconds_milliseconds_and_text_agree(second: int) -> None:
    text = datetime.fromtimestamp(second, UTC).isoformat()
    end = {"e": "2262-04-11T23:00:00Z"}
    starts = [time_range({"s": s} | end, NOW).start_ns for s in (second, str(second), second * 1000, text)]
    assert set(starts) == {second * SECOND_NS}
