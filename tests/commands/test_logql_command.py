"""`lakerunner logql`: what it asks, prints and returns, in front of a real server; and lines on a terminal."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from api.loki.loki_lake import LINES, NOW, lines_lake, loki_server
from lakerunner.cli import cli
from lakerunner.commands.terminal.ask_logql import LogqlCommand, ShownEntry, read_entries, short_labels, show_lines
from lakerunner.model.errors import UserError
from lakerunner.model.time import HOUR_NS, iso_time
from query.sample_lake import START

ALL = '{env="prod"}'
TIMES = ("--from", iso_time(START), "--to", iso_time(NOW))
ERROR = ShownEntry(START, "no\x1b[2J way", {"detected_level": "error", "app": "cart"})
PLAIN = ShownEntry(START, "text", {"detected_level": "unknown", "app": "cart"})


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with loki_server(lines_lake(tmp_path_factory.mktemp("logql"))) as client:
        yield client.url


def run(url: str, *arguments: str, stdin: str = "", key: str = "own") -> Result:
    return CliRunner().invoke(cli, ["logql", "--url", url, "--key", key, *arguments], input=stdin)


def at(second: float) -> str:
    return f"{iso_time(START + round(second * 1e9))[:-7]}Z"


def test_lines_are_shown_newest_first(url: str) -> None:
    result = run(url, ALL, *TIMES)
    assert result.exit_code == 0, result.output
    cart = "app=cart detected_level={} service_name=cart trace_id={}"
    assert result.stdout.splitlines() == [
        f"{at(61)} app=pay detected_level=warn service_name=pay level=warn refused",
        f"{at(3)} {cart.format('info', 't1')} level=info took=20ms path=/a",
        f"{at(2.5)} app=pay detected_level=info service_name=pay level=info paid 7",
        f"{at(2)} {cart.format('error', 't2')} level=error took=250ms path=/b",
        f"{at(1)} {cart.format('info', 't1')} level=info took=10ms path=/a",
    ]
    assert result.stderr == "labels of all lines: env=prod\n"


def test_the_range_may_be_a_duration(url: str) -> None:
    result = run(url, ALL, "--to", iso_time(START + 61 * 10**9), "--since", "59s", "--no-labels")
    assert result.stdout.splitlines() == [
        f"{at(3)} level=info took=20ms path=/a",
        f"{at(2.5)} level=info paid 7",
        f"{at(2)} level=error took=250ms path=/b",
    ]
    assert result.stderr == ""


def test_raw_lines_oldest_first_up_to_a_limit(url: str) -> None:
    result = run(url, "-", *TIMES, "--forward", "--limit", "2", "--output", "raw", stdin=ALL)
    assert result.stdout.splitlines() == [LINES[0].text, LINES[1].text]
    assert result.stderr == "these are the oldest 2 lines: --limit shows more\n"


def test_lines_as_json(url: str) -> None:
    query = '{app="pay"} |= "refused"'
    (line,) = run(url, query, *TIMES, "--output", "jsonl").stdout.splitlines()
    assert json.loads(line) == {
        "timestamp": iso_time(START + 61 * 10**9),
        "labels": {"app": "pay", "env": "prod", "service_name": "pay", "detected_level": "warn"},
        "line": "level=warn refused",
    }
    (line,) = run(url, query, *TIMES, "--output", "jsonl", "--no-labels").stdout.splitlines()
    assert list(json.loads(line)) == ["timestamp", "line"]


def test_a_range_without_lines(url: str) -> None:
    result = run(url, '{app="nobody"}', *TIMES)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "no lines\n")


def test_a_metric_query_is_plotted(url: str) -> None:
    result = run(url, f"sum by (app) (count_over_time({ALL}[1h]))", *TIMES)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert sorted(line for line in lines if "━━" in line) == ['━━ {app="cart"}  3', '━━ {app="pay"}  2']
    assert any(0x2800 < ord(sign) <= 0x28FF for line in lines for sign in line)


def test_a_metric_query_at_one_time_is_a_table(url: str) -> None:
    result = run(url, f"sum by (app) (count_over_time({ALL}[1h]))", "--at", iso_time(NOW))
    cells = [line.split("│")[1:3] for line in result.stdout.splitlines() if line.startswith("│")]
    assert [[cell.strip() for cell in row] for row in cells] == [["cart", "3"], ["pay", "2"]]
    assert "2 rows" in result.stdout
    assert "1 row\n" in run(url, "1 + 1", "--at", "now").stdout


def test_series_for_programs(url: str) -> None:
    query, times = f"sum by (app) (count_over_time({ALL}[1h]))", ("--from", iso_time(NOW - HOUR_NS // 2))
    head, *rows = run(url, query, *times, "--to", iso_time(NOW), "--step", "30m", "--output", "raw").stdout.splitlines()
    assert head == "timestamp,series,value"
    assert rows[1] == f'{iso_time(NOW)[:-7]}Z,"{{app=""cart""}}",3'
    assert len(rows) == 4
    first, _ = run(url, query, "--at", iso_time(NOW), "--output", "jsonl").stdout.splitlines()
    assert json.loads(first) == {"metric": {"app": "cart"}, "value": [NOW // 10**9, "3"]}
    assert json.loads(run(url, "2", "--at", "100000000", "--output", "jsonl").stdout)["value"] == [100000000, "2"]


def test_an_error_points_at_its_place(url: str) -> None:
    result = run(url, '{app="a"} | = 1', *TIMES)
    assert (result.exit_code, result.stdout) == (1, "")
    first, text, mark = result.stderr.splitlines()
    assert first.startswith("error: parse error at line 1, col 13: ")
    assert (text, mark.index("^")) == ('  {app="a"} | = 1', 2 + '{app="a"} | = 1'.index("= 1"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((ALL, "--limit", "5001"), "max entries limit per query exceeded"),
        ((ALL, "--at", "now"), "log queries are not supported as an instant query type"),
        ((ALL, "--from", "1h"), "--from '1h' is not a time: write "),
        ((ALL, "--from", "now", "--to", "now-1h"), "--from must be before --to"),
        ((ALL, "--at", "noon"), "--at 'noon' is not a time: write "),
        ((ALL, "--since", "soon"), "--since 'soon' is not a duration greater than 0: write "),
        ((ALL, "--step", "-5s"), "--step '-5s' is not a duration greater than 0: write "),
    ],
)
def test_errors_are_one_line_and_exit_code_1(url: str, arguments: tuple[str, ...], message: str) -> None:
    result = run(url, *arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"error: {message}")


def test_a_wrong_key_and_wrong_usage(url: str) -> None:
    refused = run(url, ALL, key="nobodys")
    assert (refused.exit_code, refused.stderr.splitlines()[0][:7]) == (1, "error: ")
    assert "without a reason" not in refused.stderr
    assert run(url, ALL, "--limit", "-1").exit_code == 2
    assert run(url, ALL, "--output", "xml").exit_code == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text": " "}, "the query is empty: write LogQL"),
        ({"text": "{}", "since": "1h", "start": "now"}, "--since and --from are both given"),
        ({"text": "{}", "at": "now", "step": "1m"}, "--at is one time"),
        ({"text": "{}", "limit": 0, "after": 1}, "an export of all lines"),
        ({"text": "{}", "form": "csv", "at": "now"}, "an export of all lines"),
        ({"text": "{}", "form": "parquet", "limit": 5}, "--output parquet writes all lines"),
    ],
)
def test_what_does_not_go_together(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        LogqlCommand(**options)


def test_colours_are_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    time = at(0)
    terminal, file, plain = Terminal(), io.StringIO(), Terminal()
    show_lines([ERROR, PLAIN], terminal, labels=True)
    assert terminal.getvalue().splitlines() == [
        f"\x1b[31m{time}\x1b[0m \x1b[2mdetected_level=error\x1b[0m \x1b[31mno␛[2J way\x1b[0m",
        f"{time} \x1b[2mdetected_level=unknown\x1b[0m text",
    ]
    show_lines([ERROR], file, labels=False)
    monkeypatch.setenv("NO_COLOR", "1")
    show_lines([ERROR], plain, labels=False)
    assert file.getvalue() == plain.getvalue() == f"{time} no␛[2J way\n"


def test_labels_are_quoted_where_they_need_it() -> None:
    assert short_labels({"b": "x y", "a": "1", "c": "", "d": "\u202e"}) == 'a=1 b="x y" c="" d="\\u202e"'


def test_lines_of_one_time_keep_their_order() -> None:
    streams = [{"stream": {"app": app}, "values": [["5", f"{app}2"], ["5", f"{app}1"]]} for app in "ab"]
    for forward in (False, True):
        assert [one.line for one in read_entries(streams, forward=forward)] == ["a2", "a1", "b2", "b1"]


# ---- all lines, and lines around hits


def test_all_lines_as_they_come(url: str) -> None:
    result = run(url, ALL, *TIMES, "--limit", "0", "--output", "raw", "--forward")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [line.text for line in LINES]
    (first, *_) = run(url, ALL, *TIMES, "--limit", "0", "--output", "jsonl", "--forward").stdout.splitlines()
    assert json.loads(first) == {
        "timestamp": iso_time(START + 10**9),
        "labels": {"app": "cart", "env": "prod", "service_name": "cart", "detected_level": "info", "trace_id": "t1"},
        "line": LINES[0].text,
    }
    shown = run(url, '{app="pay"} |= "paid"', *TIMES, "--limit", "0").stdout
    assert shown == f"{at(2.5)} app=pay detected_level=info env=prod service_name=pay level=info paid 7\n"
    assert run(url, '{app="nobody"}', *TIMES, "--limit", "0").stderr == "no lines\n"


def test_all_lines_as_files(url: str) -> None:
    head, *rows = run(url, ALL, *TIMES, "--output", "csv").stdout.splitlines()
    assert (head, len(rows)) == ("timestamp,line,stream,metadata,parsed", len(LINES))
    result = run(url, ALL, *TIMES, "--output", "parquet")
    assert pq.read_table(io.BytesIO(result.stdout_bytes)).num_rows == len(LINES)


def test_lines_around_each_hit(url: str) -> None:
    def lines(*options: str) -> list[str]:
        return run(url, '{app="cart"} |= "level=error"', *TIMES, *options).stdout.splitlines()

    first, hit, last = (line.text for line in LINES if dict(line.stream)["app"] == "cart")
    assert lines("-C", "1", "--output", "raw") == [first, hit, last]
    assert lines("-B", "9", "--output", "raw") == [first, hit]
    assert lines("-A", "1", "--output", "raw", "--no-labels") == [hit, last]
    assert lines("-A", "1", "--no-labels") == [f"> {at(2)} {hit}", f"  {at(3)} {last}"]
    objects = [json.loads(line) for line in lines("-C", "1", "--output", "jsonl")]
    assert [(one["line"], one["hit"]) for one in objects] == [(first, False), (hit, True), (last, False)]


def test_a_gap_stands_between_lines_that_do_not_follow_each_other(url: str) -> None:
    result = run(url, '{env="prod"} |~ "250ms|refused"', *TIMES, "-B", "1", "--output", "raw")
    assert result.stdout.splitlines() == [LINES[0].text, LINES[1].text, "--", LINES[2].text, LINES[4].text]


def test_a_hit_that_the_query_changed_is_found_by_its_time(url: str) -> None:
    query = '{app="cart"} |= "level=error" | line_format "changed"'
    result = run(url, query, *TIMES, "-A", "1", "--output", "raw")
    assert result.stdout.splitlines() == [LINES[1].text, LINES[3].text]


def test_an_export_that_is_refused(url: str) -> None:
    result = run(url, '{app="a"} | = 1', *TIMES, "--limit", "0")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "syntax error" in result.stderr
