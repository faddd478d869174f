"""Retention as people write it, and the moments that follow from it."""

from __future__ import annotations

import pytest

from lakerunner.model.errors import UserError
from lakerunner.model.retention_policy import (
    NAMES,
    WAIT_NS,
    Retention,
    duration_text,
    parse_retention,
    parse_retention_name,
    retention_name,
)
from lakerunner.model.time import DAY_NS, HOUR_NS, MIN_NS

NOW = 1_766_577_600_000_000_000
MINUTE, DAY_TIER = 60_000, 86_400_000


def parsed(text: str) -> dict[str, str]:
    pairs = [(name, value) for name, _, value in (part.partition("=") for part in text.split(","))]
    return {retention_name(*kept): duration_text(ns) for kept, ns in parse_retention(pairs).durations.items()}


def test_names_are_signals_and_tiers() -> None:
    assert list(NAMES) == [
        "logs", "metrics", "traces", "metrics.10s", "metrics.1m", "metrics.5m", "metrics.1h", "metrics.1d",
    ]  # fmt: skip
    assert NAMES["metrics.1m"] == ("metrics", MINUTE)
    assert [retention_name(*kept) for kept in NAMES.values()] == list(NAMES)
    assert len(parse_retention_name("all")) == len(NAMES)


def test_what_is_said_holds_and_no_more() -> None:
    assert parsed("logs=30d,metrics.1h=2y,traces=forever") == {"traces": "forever", "logs": "30d", "metrics.1h": "2y"}


def test_a_name_goes_before_all_wherever_it_stands() -> None:
    for text in ("all=10d,logs=3d", "logs=3d,all=10d"):
        assert parsed(text) == dict.fromkeys(NAMES, "10d") | {"logs": "3d"}


def test_under_all_a_tier_is_kept_as_long_as_windows_are_made_of_it() -> None:
    assert parsed("all=1h") == dict.fromkeys(NAMES, "1h") | {"metrics.5m": "2h", "metrics.1h": "2d"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("log=1d", "'log' has no retention: use one of logs"),
        ("metrics.2h=1d", "'metrics.2h' has no retention"),
        ("logs=soon", "logs=soon is not a duration: write 12h, 30d"),
        ("logs=-1d", "is not a duration"),
        ("logs=", "is not a duration"),
        ("logs=30m", "out of range: use 1h to 100y"),
        ("logs=101y", "out of range"),
        ("metrics.1h=1d", "too short: the next tier is computed from it, keep it for at least 48h"),
    ],
)
def test_nonsense_is_refused_with_what_to_write(text: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        parsed(text)


def test_cutoffs_are_of_what_is_not_kept_for_ever() -> None:
    retention = parse_retention([("logs", "30d"), ("traces", "forever")])
    (cutoff,) = retention.cutoffs(NOW)
    assert (cutoff.signal, cutoff.frequency_ms, cutoff.before_ns) == ("logs", 0, NOW - 30 * DAY_NS)
    assert cutoff.is_due(NOW - 30 * DAY_NS, NOW, rolled=False)
    assert not cutoff.is_due(NOW - 30 * DAY_NS + 1, NOW - 40 * DAY_NS, rolled=True)


def test_an_organization_overrides_and_keeps_the_rest() -> None:
    retention = parse_retention([("logs", "30d"), ("traces", "7d")]).with_rows(
        {("logs", 0): None, ("metrics", 0): DAY_NS}
    )
    assert retention.durations == {("logs", 0): None, ("traces", 0): 7 * DAY_NS, ("metrics", 0): DAY_NS}


def test_points_that_are_not_rolled_up_wait_while_rollups_are_kept_longer() -> None:
    cutoff = parse_retention([("metrics", "15d"), *((f"metrics.{t}", "30d") for t in ("10s", "1m", "5m", "1h", "1d"))])
    raw, *_, last = cutoff.cutoffs(NOW)
    end, long_ago = NOW - 15 * DAY_NS, NOW - 90 * DAY_NS
    assert raw.is_due(end, long_ago, rolled=True)
    assert not raw.is_due(end, long_ago, rolled=False)
    assert raw.is_due(end - WAIT_NS, long_ago, rolled=False)  # it waited in vain
    assert not raw.is_due(end - WAIT_NS, NOW - WAIT_NS + 1, rolled=False)  # old rows that have just come
    assert raw.is_due(NOW - 30 * DAY_NS, NOW - HOUR_NS, rolled=False)  # no tier keeps them either
    assert last.frequency_ms == DAY_TIER
    assert last.is_due(NOW - 30 * DAY_NS, NOW, rolled=False)  # nothing is made of the last tier


def test_rollups_that_are_kept_for_ever_are_waited_for_and_no_longer_than_the_wait() -> None:
    (cutoff,) = Retention({("metrics", 0): DAY_NS}).cutoffs(NOW)
    assert cutoff.unneeded_ns == MIN_NS
    assert not cutoff.is_due(NOW - DAY_NS - WAIT_NS + 1, 0, rolled=False)
    assert cutoff.is_due(NOW - DAY_NS - WAIT_NS, 0, rolled=False)
