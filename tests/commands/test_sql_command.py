"""`lakerunner sql` with a query: what it asks, prints and returns, in front of a real server."""

from __future__ import annotations

import io
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from lakerunner.cli import cli
from lakerunner.commands.terminal import show
from lakerunner.commands.terminal.ask_sql import parameters
from lakerunner.commands.terminal.client import Client
from lakerunner.commands.terminal.show import Query
from lakerunner.model.errors import UserError
from lakerunner.model.organization import Organization
from lakerunner.model.time import TimeRange
from lakerunner.query.contract.account import Account, Missing
from lakerunner.services.home import Home
from query.sample_lake import FULL_SHRED, NOW, OWN, START, Lake, Record, random_records
from servers.lake import LAKERUNNER, clean_environment
from suites.scripted import FAILURE, SCHEMA, Scripted, ScriptedEngine, sql_server

HOUR = TimeRange(1_704_067_200_000_000_000, 1_704_070_800_000_000_000)
WIDE = pa.schema([(f"column_{n:02}", pa.string()) for n in range(30)])
CUT_OFF = "the query failed while its answer was sent, and the %s is cut off: use ndjson to see the reason"
NASTY = "[bold]not bold[/bold] \x1b[31mred\x1b[0m \x9b2J\u2028end\ttab"


def batch(schema: pa.Schema, *rows: list[object]) -> pa.RecordBatch:
    return pa.record_batch(
        [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)], schema
    )


@pytest.fixture
def engine() -> ScriptedEngine:
    text, exact = pa.schema([("message", pa.string())]), pa.schema([("d", pa.decimal128(38, 2))])
    huge = pa.array(["12345678901234567890123456789012345.50"]).cast(pa.decimal128(38, 2))
    missing = Missing(2, HOUR, "the store is away")
    return ScriptedEngine(
        {
            "q": Scripted([1, 2]),
            "fails": Scripted([1, "fail"]),
            "part": Scripted([1, Account(considered=3, read=1, missing=(missing,))]),
            "old": Scripted([Account(degraded="the index is away"), 1]),
            "gone": Scripted([Account(warnings=frozenset({"logs: all up to then has expired"})), 1]),
            "nasty": Scripted([batch(text, [NASTY])], text),
            "wide": Scripted([batch(WIDE, [f"value {n}" for n in range(30)])], WIDE),
            "exact": Scripted([pa.record_batch([huge], exact)], exact),
            "EXPLAIN q": Scripted([batch(text, ["scan logs"], ["  2 segments"])], text),
            "EXPLAIN ANALYZE q": Scripted([batch(text, ["read 2 segments"])], text),
        }
    )


@pytest.fixture
def url(engine: ScriptedEngine) -> Iterator[str]:
    with sql_server(engine) as base:
        yield base


def run(url: str, *arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(cli, ["sql", "--url", url, *arguments], input=stdin)


def test_every_format_is_printed(url: str) -> None:
    assert json.loads(run(url, "q", "--format", "json").stdout) == [{"n": 1}, {"n": 2}]
    assert run(url, "q", "--format", "ndjson").stdout == '{"n":1}\n{"n":2}\n'
    assert run(url, "q", "--format", "csv").stdout == "n\n1\n2\n"
    table = run(url, "q").stdout
    assert [line.strip() for line in table.splitlines()][3:5] == ["│ 1 │", "│ 2 │"]
    assert table.endswith("2 rows\n")
    assert pa.ipc.open_stream(run(url, "q", "--format", "arrow").stdout_bytes).read_all().schema == SCHEMA
    assert pq.read_table(io.BytesIO(run(url, "q", "--format", "parquet").stdout_bytes)).to_pylist() == [
        {"n": 1},
        {"n": 2},
    ]


def test_a_file_is_written_whole_or_not_at_all(url: str, tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    assert run(url, "q", "--format", "arrow", "--output", str(good)).exit_code == 0
    assert pa.ipc.open_stream(good.read_bytes()).read_all().to_pylist() == [{"n": 1}, {"n": 2}]
    for form in ("json", "ndjson", "csv", "arrow", "parquet"):
        failed = run(url, "fails", "--format", form, "--output", str(bad))
        assert failed.exit_code == 1
        whole = form in ("json", "ndjson", "parquet")
        assert failed.stderr == f"error: {FAILURE if whole else CUT_OFF % form}\n"
        assert list(tmp_path.iterdir()) == [good]
    nowhere = run(url, "q", "--format", "csv", "--output", str(tmp_path / "no" / "such"))
    assert nowhere.exit_code == 1
    assert "No such file or directory" in nowhere.stderr


def test_a_device_a_pipe_and_a_link_are_written_to_and_not_replaced(url: str, tmp_path: Path) -> None:
    """A file that took the place of /dev/null would harm every process of the machine."""
    pipe, link, target = tmp_path / "pipe", tmp_path / "link", tmp_path / "target"
    os.mkfifo(pipe)
    target.write_text("old")
    link.symlink_to("target")
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True)
    assert run(url, "q", "--format", "csv", "--output", str(pipe)).exit_code == 0
    assert reader.communicate(timeout=60)[0] == "n\n1\n2\n"
    assert run(url, "q", "--format", "csv", "--output", str(link)).exit_code == 0
    assert (link.is_symlink(), target.read_text()) == (True, "n\n1\n2\n")
    assert sorted(tmp_path.iterdir()) == [link, pipe, target]


@pytest.mark.parametrize("form", ["csv", "ndjson", "table"])
def test_a_full_disk_is_one_line(url: str, form: str) -> None:
    command = [*LAKERUNNER, "sql", "--url", url, "q", "--format", form]
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=clean_environment())
    assert (ended.returncode, ended.stderr) == (1, "error: cannot write: No space left on device\n")


def test_a_query_that_is_not_text_is_refused(url: str) -> None:
    ended = subprocess.run(
        [*LAKERUNNER, "sql", "--url", url, b"select '\xff'"], capture_output=True, text=True, env=clean_environment()
    )
    reason = "error: the query is not UTF-8 text: set LC_ALL to a UTF-8 locale such as C.UTF-8, or use --file\n"
    assert (ended.returncode, ended.stderr) == (1, reason)


def test_a_terminal_of_another_encoding_gets_question_marks(url: str) -> None:
    environment = clean_environment() | {"PYTHONIOENCODING": "ascii"}
    command = [*LAKERUNNER, "sql", "--url", url, "nasty", "--format", "table"]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "?[31mred" in ended.stdout


def test_a_table_does_not_go_to_a_file(url: str, tmp_path: Path) -> None:
    refused = run(url, "q", "--output", str(tmp_path / "x"))
    assert isinstance(refused.exception, UserError)
    assert "--output needs a format for programs: one of json, ndjson, csv, arrow, parquet" in str(refused.exception)


def test_what_is_missing_is_said_and_is_exit_code_3(url: str, engine: ScriptedEngine) -> None:
    for form in ("table", "json", "ndjson"):
        result = run(url, "part", "--partial", "--format", form)
        assert result.exit_code == 3
        assert "1" in result.stdout
        assert result.stderr == (
            "warning: this answer is NOT COMPLETE. Missing:\n"
            "  2 segments of 2024-01-01T00:00:00.000000000Z to 2024-01-01T01:00:00.000000000Z: the store is away\n"
        )
    assert [question.partial for question in engine.asked] == [True] * 3
    run(url, "q")
    assert engine.asked[-1].partial is False
    refused = run(url, "part", "--partial", "--format", "csv")
    assert "--partial needs a format that can list missing data" in str(refused.exception)


def test_a_degraded_answer_is_said(url: str) -> None:
    for form in ("table", "json", "csv", "parquet"):
        result = run(url, "old", "--format", form)
        assert result.exit_code == 0
        assert result.stderr == "warning: this answer may be out of date: the index is away\n"


def test_what_has_expired_is_said(url: str) -> None:
    for form in ("table", "json", "csv", "parquet"):
        result = run(url, "gone", "--format", form)
        assert (result.exit_code, result.stderr) == (0, "warning: logs: all up to then has expired\n")


def test_queries_come_from_standard_input_and_files(url: str, tmp_path: Path) -> None:
    assert run(url, "-", "--format", "csv", stdin="q").stdout == "n\n1\n2\n"
    file = tmp_path / "query.sql"
    file.write_text("q")
    assert run(url, "--file", str(file), "--format", "csv").stdout == "n\n1\n2\n"
    assert run(url, "q", "--file", str(file)).exit_code == 2
    nothing = run(url)
    assert nothing.exit_code == 2
    assert "no query: give QUERY, or `-`" in nothing.stderr


def test_plans_are_plain_lines(url: str) -> None:
    assert run(url, "q", "--explain").stdout == "scan logs\n  2 segments\n"
    assert run(url, "q", "--analyze").stdout == "read 2 segments\n"


def test_parameters_and_engine_are_sent(url: str, engine: ScriptedEngine) -> None:
    run(url, "q", "--param", "a=1", "--param", "b:=[1, null]", "--param", "c==x", "--engine", "spark")
    assert engine.asked[-1].parameters == {"a": "1", "b": [1, None], "c": "=x"}
    assert engine.asked[-1].engine == "spark"
    for wrong in ("a", "=x", ":=1", "a:=x"):
        with pytest.raises(UserError):
            parameters((wrong,))


def test_text_of_telemetry_is_shown_and_not_obeyed(url: str) -> None:
    table = run(url, "nasty").stdout
    assert "[bold]not bold[/bold] ␛[31mred␛[0m �2J" in table
    assert "\x1b" not in table
    assert json.loads(run(url, "nasty", "--format", "json").stdout) == [{"message": NASTY}]


def test_all_digits_are_shown(url: str) -> None:
    for form in ("table", "json", "ndjson", "csv"):
        assert "12345678901234567890123456789012345.50" in run(url, "exact", "--format", form).stdout


def test_rows_that_do_not_fit_are_shown_one_by_one(url: str) -> None:
    lines = run(url, "wide").stdout.splitlines()
    assert lines[0].startswith("row 1 ─")
    assert [line.split() for line in lines[1:3]] == [["column_00", "value", "0"], ["column_01", "value", "1"]]
    assert lines[-1] == "1 row"


def test_one_row_more_than_a_table_holds_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show, "TABLE_ROWS", 2)
    assert run(url, "q").exit_code == 0
    monkeypatch.setattr(show, "TABLE_ROWS", 1)
    over = run(url, "q")
    assert over.exit_code == 1
    assert "more than 1 rows do not fit in a table: add a LIMIT, or use --format ndjson" in over.stderr


def test_leaving_an_answer_early_stops_its_query(url: str, engine: ScriptedEngine) -> None:
    engine.answers["endless"] = Scripted([1, "wait"])  # type: ignore[index]
    with Client(url, None).sql(Query("endless")) as answer:
        assert next(iter(answer)) == {"n": 1}
    assert engine.answers["endless"].closed.wait(60)


def test_nobody_at_the_address(tmp_path: Path) -> None:
    result = run("http://127.0.0.1:1", "select 1")
    assert result.exit_code == 1
    assert result.stderr == "error: the API at http://127.0.0.1:1 cannot be reached, or broke off: Connection refused\n"


def test_a_killed_lake_leaves_an_address_at_which_nothing_runs(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.announce("http://127.0.0.1:1")
    found = ["sql", "--home", str(tmp_path), "select 1"]
    assert CliRunner().invoke(cli, found).stderr.startswith("error: the API at http://127.0.0.1:1 cannot be reached")
    address = (tmp_path / "address").read_text()
    home.close()
    (tmp_path / "address").write_text(address)
    assert (
        CliRunner().invoke(cli, found).stderr.startswith(f"error: nothing runs with home {tmp_path}: start `lakerunner")
    )


def test_a_real_engine_is_asked_by_a_real_process(tmp_path: Path) -> None:
    """The error's place in the text is shown; and an answer of more rows than the reader wants ends quietly."""
    lake = Lake(tmp_path / "lake")
    lake.add([*random_records(5000, 1, START), Record(START, message="a\u2028b\x85c")], shred=FULL_SHRED)
    with sql_server(lake.engine(), Organization(OWN, "own"), lambda: NOW) as url:
        command = [*LAKERUNNER, "sql", "--url", url]

        def sql(*arguments: str) -> subprocess.CompletedProcess[str]:
            environment = clean_environment()
            return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60, env=environment)

        wrong = sql("SELECT service_name,\n  nope FROM logs")
        assert wrong.returncode == 1
        assert wrong.stderr.endswith("\n    nope FROM logs\n    ^\n")
        counted = sql("SELECT count(*) AS n FROM logs", "--format", "json")
        assert json.loads(counted.stdout) == [{"n": 5001}]
        odd = sql("SELECT message FROM logs WHERE message LIKE 'a%b%c'", "--format", "ndjson")
        assert json.loads(odd.stdout) == {"message": "a\u2028b\x85c"}
        piped = subprocess.run(
            " ".join([*command, "--format", "ndjson", "'SELECT * FROM logs'", "| head -n 1"]),
            shell=True,
            capture_output=True,
            timeout=60,
            env=clean_environment(),
        )
        assert "timestamp" in json.loads(piped.stdout)
        assert piped.stderr == b""
