"""GET /api/v1/metrics/cardinality: what it asks, what it answers, whose it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import httpx
import pytest

from lakerunner.api.native.metrics_request import default_window
from lakerunner.model.organization import DEFAULT_ORGANIZATION, Organization
from suites.metrics_lake import metrics_server, sample_lake

NOW = 1_714_564_800_000  # 2024-05-01T12:00:00Z
OTHER = Organization(UUID(int=9), "other")
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    keys = {"own": DEFAULT_ORGANIZATION, "other": OTHER}
    with metrics_server(sample_lake(NOW), NOW * 1_000_000, keys=keys) as base:
        yield f"{base}/api/v1/metrics/cardinality"


def ask(url: str, key: str = "own", **given: Any) -> httpx.Response:
    return httpx.get(url, params=given, headers={"x-api-key": key}, timeout=60)


def test_series_by_metric_and_window(url: str) -> None:
    answer = ask(url, start="now-20m", step="5m").json()
    assert answer["step"] == 5 * MINUTE
    assert [one["end"] for one in answer["windows"]] == [
        f"2024-05-01T11:{minute}:00.000000000Z" for minute in (45, 50, 55)
    ] + ["2024-05-01T12:00:00.000000000Z"]
    assert [one["tiers"] for one in answer["windows"]] == [["raw"]] * 4
    assert [one["over"] for one in answer["windows"]] == [True] * 4
    # The first points are those at 11:50 sharp, which ends a window.
    assert answer["metrics"] == [
        {"metric": "http_requests_total", "series": 4, "now": 4, "most": 4, "by_window": [0, 4, 4, 4]},
        {"metric": "up", "series": 2, "now": 2, "most": 2, "by_window": [0, 2, 2, 2]},
        {"metric": "http.size", "series": 1, "now": 1, "most": 1, "by_window": [0, 1, 1, 1]},
    ]
    assert (answer["truncated"], answer["complete"], answer["relative_error"]) == (False, True, 0.023)
    assert "labels" not in answer


def test_the_last_window_may_not_be_over(url: str) -> None:
    windows = ask(url, start="now-10m", step="7m").json()["windows"]
    assert [(one["end"][11:19], one["over"]) for one in windows] == [
        ("11:52:00", True),
        ("11:59:00", True),
        ("12:06:00", False),
    ]


def test_labels_of_a_metric(url: str) -> None:
    answer = ask(url, metric="http_requests_total", labels="1").json()
    assert [one["metric"] for one in answer["metrics"]] == ["http_requests_total"]
    assert answer["labels"] == [
        {"label": name, "of": "series", "values": 2, "exact": True} for name in ("code", "instance", "job")
    ]
    assert answer["step"] == 5 * MINUTE


def test_the_largest_metrics_are_listed(url: str) -> None:
    answer = ask(url, limit=1).json()
    assert ([one["metric"] for one in answer["metrics"]], answer["truncated"]) == (["http_requests_total"], True)


def test_others_see_nothing(url: str) -> None:
    assert ask(url, "other").json()["metrics"] == []
    assert ask(url, "other", metric="up", labels="1").json()["labels"] == []
    assert ask(url, "nobody").status_code == 401


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"step": "15s"}, "windows of 10s: use a multiple of 10s"),
        ({"step": "soon"}, "not 'soon'"),
        ({"start": "now", "end": "now-1h"}, "start must be before end"),
        ({"end": "later"}, "end 'later' is not a time"),
        ({"labels": "1"}, "labels need a metric: name one"),
        ({"labels": "maybe"}, "labels must be 1 or 0"),
        ({"limit": "0"}, "limit must be a number of metrics from 1 to 10,000, not '0'"),
        ({"limit": "9999999999"}, "1 to 10,000"),
    ],
)
def test_what_is_wrong_is_said(url: str, given: dict[str, str], message: str) -> None:
    response = ask(url, **given)
    assert response.status_code == 400
    assert message in response.json()["error"]["message"]


def test_windows_are_as_wide_as_fits() -> None:
    widths = [
        default_window(one) for one in (MINUTE, 8 * MINUTE, HOUR, 4 * HOUR, 4 * HOUR + 1, DAY, 30 * DAY, 400 * DAY)
    ]
    assert widths == [10_000, 10_000, 5 * MINUTE, 5 * MINUTE, HOUR, HOUR, DAY, DAY]
