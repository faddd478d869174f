"""`lakerunner promql`: what it asks, draws and returns, in front of a real server; and the plot itself."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator

import numpy as np
import pytest
from click.testing import CliRunner, Result

from lakerunner.api.formats.series_text import warm
from lakerunner.cli import cli
from lakerunner.commands.terminal.plot import Line, plot, short
from lakerunner.model.errors import TooLarge
from lakerunner.model.labels import NAME
from lakerunner.model.time import TimeRange
from lakerunner.query.contract.account import Account, Missing
from lakerunner.query.reads import Read
from lakerunner.query.series_answer import StepGroup
from lakerunner.series.histograms.histogram import BucketCounts, Histogram
from lakerunner.series.values import Steps, Vector
from suites.metrics_lake import MemoryLake, ScriptedLake, ScriptedMetrics, metrics_server, sample_lake

NOW = 1_794_823_890_000
HISTOGRAM = Histogram(0, 5.0, 18.4, positive=BucketCounts(np.array([0, 1], np.int32), np.array([3.0, 2.0])))
NASTY = "[bold]x[/bold]\x1b[31m"


@pytest.fixture(scope="module")
def lake() -> MemoryLake:
    """With samples up to now, which may be long after this file was read."""
    warm()
    now = int(time.time()) // 15 * 15_000
    made = sample_lake(now)
    made.add({NAME: "latency", "job": "cart"}, [(now - 30_000, HISTOGRAM), (now, HISTOGRAM)])
    made.add({NAME: "nasty", "text": NASTY}, [(now - 30_000, 1.0), (now, 2.0)])
    return made


@pytest.fixture(scope="module")
def url(lake: MemoryLake) -> Iterator[str]:
    with metrics_server(lake, time.time_ns()) as base:
        yield base


def run(url: str, *arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(cli, ["promql", "--url", url, *arguments], input=stdin)


@pytest.mark.parametrize(
    ("query", "meant"),
    [
        ("sum(rate(http_request_total[5m]))", "http_requests_total"),
        ("http_requests_total{job='nobody'}", ""),
        ("up > 1e9", ""),
        ("sum(http_requests_total offset 2h)", ""),
    ],
)
def test_a_misspelt_metric_is_named(url: str, query: str, meant: str) -> None:
    hint = f"no series: there is no metric http_request_total in this time. Did you mean {meant}?\n"
    result = run(url, query, "--instant")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "0 rows")
    assert result.stderr == (hint if meant else "")


def test_a_time_without_metrics_is_named(url: str) -> None:
    result = run(url, "up", "--time", "2001-01-01T00:00:00Z")
    assert (result.exit_code, result.stderr) == (0, "no series: there are no metrics in this time\n")


def test_the_last_hour_is_plotted(url: str, lake: MemoryLake) -> None:
    result = run(url, 'http_requests_total{code="200"}')
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines if "┤" in line] == ["1.5k", "1.0k", "0.5k", "0.0k"]
    assert re.fullmatch(r'━━ http_requests_total{code="200", instance="cart-1:80", job="cart"}  1\.[12]\d*k', lines[-2])
    assert any(0x2800 < ord(sign) <= 0x28FF for line in lines for sign in line)
    asked = lake.asked[-1]
    assert (asked.steps.end - asked.steps.start, asked.steps.start % asked.steps.step) == (3_600_000, 0)
    assert 100 < len(asked.steps) < 400


def test_one_moment_is_a_table(url: str) -> None:
    result = run(url, "up", "--instant")
    assert result.exit_code == 0
    assert [line.split("│")[1:5] for line in result.stdout.splitlines() if "cart" in line] == [
        [" up       ", " cart-1:80 ", " cart ", "     1 "]
    ]
    assert "2 rows" in result.stdout
    assert run(url, "'text'", "--time", "now").stdout == "text\n"


def test_csv_and_json(url: str) -> None:
    result = run(url, "up{job='pay'} / 3", "--start", "now-1m", "--step", "30s", "--format", "csv")
    head, *rows = result.stdout.splitlines()
    assert head == "timestamp,series,value"
    assert len(rows) == 3
    assert rows[0].endswith('Z,"{instance=""pay-1:80"", job=""pay""}",0.3333333333333333')
    answer = json.loads(run(url, "up", "--instant", "--format", "json").stdout)
    assert [row["value"][1] for row in answer["result"]] == ["1", "1"]


def test_histograms_are_text(url: str) -> None:
    line = "{count:5, sum:18.4, (0.5,1]:3, (1,2]:2}"
    assert line in run(url, "latency", "--instant").stdout
    assert line in run(url, "latency", "--start", "now-2m").stdout


def test_an_error_points_at_its_place(url: str) -> None:
    result = run(url, "sum(up) bi (job)", "--instant")
    assert result.exit_code == 1
    first, text, mark = result.stderr.splitlines()
    assert first.startswith("error: parse error: ")
    assert (text, mark.index("^")) == ("  sum(up) bi (job)", 2 + "sum(up) bi (job)".index("bi"))


def test_a_query_from_standard_input(url: str) -> None:
    assert "2 rows" in run(url, "-", "--instant", stdin="up\n").stdout


def test_text_of_telemetry_is_shown_and_not_obeyed(url: str) -> None:
    for arguments, escape in ((("--instant",), "␛"), (("--start", "now-2m"), "\\u001b")):
        shown = run(url, "nasty", *arguments).stdout
        assert f"[bold]x[/bold]{escape}[31m" in shown
        assert "\x1b" not in shown


def test_notes_go_to_standard_error(url: str) -> None:
    result = run(url, "rate(up[1m])", "--instant")
    assert result.exit_code == 0
    assert "PromQL info: metric might not be a counter" in result.stderr


def test_what_does_not_go_together(url: str) -> None:
    assert "--instant takes one --time" in str(run(url, "up", "--instant", "--start", "now-1h").exception)
    assert "--time and --end are both given" in str(run(url, "up", "--time", "now", "--end", "now").exception)


def test_errors_name_the_options(url: str) -> None:
    assert run(url, "up", "--start", "1h").stderr.startswith("error: --start '1h' is not a time: write ")
    assert run(url, "up", "--time", "noon").stderr.startswith("error: --time 'noon' is not a time: write ")
    assert run(url, "up", "--end", "now-2h", "--start", "now").stderr == (
        "error: --start must be before --end: --start is 'now', --end is 'now-2h'\n"
    )
    assert run(url, " ").stderr == "error: the query is empty: write PromQL, such as up\n"


def test_what_is_missing_is_exit_code_3_and_a_failure_1() -> None:
    group = StepGroup(Steps(NOW, NOW), Vector([()], np.ones((1, 1)), np.ones((1, 1), bool)))
    missing = Missing(2, TimeRange(NOW * 1_000_000, NOW * 1_000_000 + 1), "the store is away")
    answers = {
        "part": ScriptedMetrics([group, Account(missing=(missing,))]),
        "late": ScriptedMetrics([group, TooLarge("more than metrics_max_samples")]),
    }
    lake = ScriptedLake(answers=dict(answers))
    with metrics_server(lake, time.time_ns()) as base:
        result = run(base, "part", "--partial")
        assert result.exit_code == 3
        assert "NOT COMPLETE" in result.stderr
        assert "the store is away" in result.stderr
        late = run(base, "late")
        assert (late.exit_code, late.stdout) == (1, "")
        assert "more than metrics_max_samples" in late.stderr
    assert [question.partial for question in lake.asked] == [True, False]


def drawn(lines: list[Line], width: int = 40, height: int = 6) -> list[str]:
    return [text.plain for text in plot(lines, 0, 10_000, width, height)]


def test_a_line_rises_from_corner_to_corner() -> None:
    rows = drawn([Line("up", [(n * 1000, float(n)) for n in range(11)], 1000)])
    assert rows[0].startswith("10 ┤")
    assert rows[0].rstrip()[-1] in "⠁⠈⠉⠋⠊⡠⠔⠐⠒⠚⠜⡰⠎⠤"
    assert rows[5].startswith(" 0 ┤")
    assert rows[5][len(" 0 ┤")] != " "
    assert rows[6].startswith("   └─")
    assert rows[7].split() == ["00:00:00", "00:00:10", "UTC"] or rows[7].endswith("00:00:10 UTC")
    assert rows[8] == "━━ up  10"


def test_gaps_stay_empty() -> None:
    points = [(0, 1.0), (1000, 1.0), (5000, math.nan), (9000, 1.0), (10_000, 1.0)]
    rows = drawn([Line("x", points, 1000)])
    (row,) = [row for row in rows[:6] if any(0x2800 < ord(sign) < 0x2900 for sign in row)]
    inside = row.partition("┤")[2] or row.partition("│")[2]
    assert inside.strip() == inside.strip(" ")
    assert " " * 20 in inside


def test_many_series_are_counted_not_drawn() -> None:
    rows = drawn([Line(f"s{n}", [(0, float(n))], 1000) for n in range(50)])
    assert rows[-1] == "and 10 more series, not drawn"


def test_nothing_to_plot_is_said() -> None:
    assert drawn([]) == drawn([Line("x", [(0, math.inf)], 1)]) == ["no values to plot"]


@pytest.mark.parametrize(
    "values",
    [[0.0], [5.0, 5.0], [1e-12, 2e-12], [1e300, -1e300], [1e15, 1e15 + 2], [-3.0, -1.0], [5e-324], [1e305, -1e305]],
)
def test_any_numbers_have_axes(values: list[float]) -> None:
    rows = drawn([Line("x", [(n * 1000, value) for n, value in enumerate(values)], 1000)])
    assert len([row for row in rows if "┤" in row]) >= 2


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (1234567.0, "1.235M"), (0.05, "50m"), (12.5, "12.5"), (1e20, "1e+20")]
)
def test_short_numbers(value: float, text: str) -> None:
    assert short(value) == text


def test_which_tiers_were_read() -> None:
    lake = ScriptedLake()
    steps = Steps(NOW, NOW)
    group = StepGroup(steps, Vector([()], np.ones((1, 1)), np.ones((1, 1), bool)))
    tiles = {300_000: ((NOW - 600_000, NOW - 300_000),), 0: ((NOW - 300_000, NOW),)}
    read = Read("rate(a[5m])", 300_000, "1 h rollups need a range that is a multiple of 1 h", tiles)
    lake.answers["rate(a[5m])"] = ScriptedMetrics([group], reads=(read,))
    with metrics_server(lake, NOW * 1_000_000) as url:
        result = run(url, "rate(a[5m])", "--instant", "--explain", "--raw")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "rate(a[5m])",
        "  Read 5 min rollups or finer: 1 h rollups need a range that is a multiple of 1 h.",
        "  read 5 min rollups after 2026-11-16 10:01:30 to 2026-11-16 10:06:30",
        "  read raw samples after 2026-11-16 10:06:30 to 2026-11-16 10:11:30",
    ]
    assert lake.asked[-1].raw


def test_the_engine_is_asked_for() -> None:
    lake = ScriptedLake()
    group = StepGroup(Steps(NOW, NOW), Vector([()], np.ones((1, 1)), np.ones((1, 1), bool)))
    lake.answers["a"] = ScriptedMetrics([group])
    with metrics_server(lake, NOW * 1_000_000) as url:
        assert run(url, "a", "--instant", "--engine", "spark").exit_code == 0
        assert lake.asked[-1].engine == "spark"
        assert run(url, "a", "--instant").exit_code == 0
        assert lake.asked[-1].engine == "duckdb"
        assert run(url, "a", "--engine", "presto").exit_code == 2


def test_the_plan_is_shown_without_running_the_query() -> None:
    with metrics_server(MemoryLake(), NOW * 1_000_000) as url:
        result = run(url, "sum(rate(a[5m]))", "--time", "2026-11-16T10:00:00Z", "--plan")
        wrong = run(url, "sum(", "--plan")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[:5] == [
        "coordinator",
        "  at 2026-11-16 10:00:00",
        "  evaluate <given 0>",
        "  workers, metrics",
        "    partials of sum(rate(a[5m]))",
    ]
    assert (wrong.exit_code, wrong.stdout) == (1, "")
    assert "line 1, column 5" in wrong.stderr
