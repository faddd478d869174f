"""`lakerunner cardinality` in front of a real server."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from io import StringIO

import pytest
from click.testing import CliRunner, Result

from lakerunner.cli import cli
from lakerunner.commands.cardinality import bars, show_cardinality
from suites.metrics_lake import metrics_server, sample_lake


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Ten minutes up to now, which is the end of a window."""
    now = int(time.time()) // 300 * 300_000
    with metrics_server(sample_lake(now), now * 1_000_000) as base:
        yield base


def run(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["cardinality", "--url", url, *arguments])


def test_the_largest_metrics_are_a_table(url: str) -> None:
    result = run(url, "--start", "now-15m", "--step", "5m", "--limit", "2")
    assert result.exit_code == 0, result.output
    cells = [line.replace("│", " ").split() for line in result.stdout.splitlines()]
    assert ["http_requests_total", "4", "4", "4", "███"] in cells
    assert ["up", "2", "2", "2", "███"] in cells
    assert "http.size" not in result.stdout
    assert "more metrics exist: raise --limit" in result.stdout
    assert "windows of 5m, ends " in result.stdout
    assert result.stdout.rstrip().endswith("counted from points")  # all windows are over


def test_a_window_that_is_not_over_and_what_has_expired_are_said() -> None:
    window = {"end": "2024-05-01T12:00:00.000000000Z", "tiers": ["1h"], "over": False}
    answer = {"step": 3_600_000, "windows": [window], "metrics": [], "truncated": False, "degraded": None}
    shown = StringIO()
    show_cardinality(answer | {"warnings": ["points up to then have expired"]}, "table", shown)
    assert shown.getvalue().splitlines()[-3:] == [
        "windows of 1h, ends 2024-05-01T12:00:00Z to 2024-05-01T12:00:00Z; counted from 1h rollups",
        "the last window is not complete yet; `now` is the one before it",
        "warning: points up to then have expired",
    ]


def test_labels_of_a_metric(url: str) -> None:
    result = run(url, "http_requests_total", "--label")
    assert result.exit_code == 0, result.output
    cells = [line.replace("│", " ").split() for line in result.stdout.splitlines()]
    assert [one for one in cells if one[1:2] == ["series"]] == [[n, "series", "2"] for n in ("code", "instance", "job")]


def test_json_is_the_answer_itself(url: str) -> None:
    answer = json.loads(run(url, "up", "--format", "json").stdout)
    assert answer["metrics"][0]["series"] == 2
    assert {"raw"} == {tier for window in answer["windows"] for tier in window["tiers"]}


def test_wrong_usage(url: str) -> None:
    result = run(url, "--label")
    assert (result.exit_code, "--label needs a METRIC" in result.output) == (2, True)
    result = CliRunner().invoke(cli, ["cardinality", "--help"])
    assert "which label is it?" in result.output


def test_bars_say_how_many() -> None:
    assert bars([0, 1, 4, 8]) == " ▁▄█"
    assert bars([0, 0]) == "  "
    assert bars([1_000_000, 1]) == "█▁"
    assert len(bars(list(range(100)))) == 48
