"""`logql('...')` as a table of LakeQL: columns, times, joins, groups, EXPLAIN, refusals, one organization."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from api.loki.loki_lake import LINES, NOW, SECOND, lines_lake
from lakerunner.lakeql import compile_sql
from lakerunner.lakeql.spark import compile_spark
from lakerunner.model.errors import UserError
from lakerunner.model.streams.stream_rules import StreamRules
from lakerunner.model.time import iso_time
from lakerunner.query.gather import GatherOptions, UnitSize
from lakerunner.query.sql import Question, SqlQueries
from lakerunner.query.workers import OneWorker
from query.sample_lake import OTHER, OWN, START, Lake
from suites.queries import sql_queries

CART = """logql('{app="cart"} | logfmt')"""
ALL = """logql('{env="prod"}')"""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return lines_lake(tmp_path_factory.mktemp("logql-table"))


@pytest.fixture(scope="module")
def queries(lake: Lake) -> SqlQueries:
    return lake.engine()


def rows(queries: SqlQueries, text: str, organization: Any = OWN, **parameters: Any) -> list[tuple[Any, ...]]:
    answer = queries.sql(organization, Question(text, NOW, parameters))
    return [tuple(row.values()) for batch in answer for row in batch.to_pylist()]


def labels(pairs: Mapping[str, str] | list[tuple[str, str]]) -> dict[str, str]:
    return dict(pairs)


def test_columns(queries: SqlQueries) -> None:
    first, *others = rows(queries, f"SELECT * FROM {CART} ORDER BY timestamp")
    _, line, stream, metadata, parsed = first
    assert line == LINES[0].text
    assert rows(queries, f"SELECT epoch_ns(min(timestamp)) FROM {CART}") == [(START + SECOND,)]
    assert labels(stream) == {"app": "cart", "env": "prod", "service_name": "cart"}
    assert labels(metadata) == {"detected_level": "info", "trace_id": "t1"}
    assert labels(parsed) == {"level": "info", "took": "10ms", "path": "/a"}
    assert len(others) == 2


def test_labels_group_filter_and_sort(queries: SqlQueries) -> None:
    assert rows(queries, f"SELECT parsed['path'] AS path, count(*) FROM {CART} AS l GROUP BY 1 ORDER BY 1") == [
        ("/a", 2),
        ("/b", 1),
    ]
    assert rows(queries, f"SELECT DISTINCT l.stream['app'] FROM {ALL} l ORDER BY 1 DESC") == [("pay",), ("cart",)]
    found = rows(queries, f"SELECT line FROM {ALL} WHERE metadata['detected_level'] = 'error'")
    assert found == [(LINES[1].text,)]
    assert rows(queries, f"SELECT line FROM {ALL} ORDER BY timestamp DESC LIMIT 1") == [(LINES[4].text,)]
    assert rows(queries, f"SELECT line FROM {ALL} ORDER BY length(line) DESC, line LIMIT 1") == [(LINES[1].text,)]


def test_the_time_of_where_bounds_the_leaf(queries: SqlQueries) -> None:
    within = f"timestamp >= '{iso_time(START + 2 * SECOND)}' AND timestamp < '{iso_time(START + 3 * SECOND)}'"
    text = f"SELECT line FROM {ALL} WHERE {within} ORDER BY timestamp"
    assert rows(queries, text) == [(LINES[1].text,), (LINES[2].text,)]
    plan = "\n".join(line for (line,) in rows(queries, f"EXPLAIN {text}"))
    assert 'lines of {env="prod"}' in plan
    assert iso_time(START + 2 * SECOND)[:19] in plan.replace(" ", "T")


def test_joins_with_tables_and_with_other_log_queries(queries: SqlQueries) -> None:
    pairs = rows(
        queries,
        f"""SELECT a.line, b.line FROM {CART} a JOIN {ALL} b
            ON a.metadata['trace_id'] = b.metadata['trace_id'] AND a.timestamp < b.timestamp ORDER BY 1""",
    )
    assert pairs == [(LINES[0].text, LINES[3].text)]
    counts = rows(
        queries,
        f"""SELECT l.message, count(*) FROM logs l JOIN {CART} c ON l.message = c.line AND l.timestamp = c.timestamp
            GROUP BY 1 ORDER BY 1""",
    )
    assert counts == sorted((line.text, 1) for line in LINES if dict(line.stream)["app"] == "cart")
    assert rows(queries, f"WITH l AS (SELECT line FROM {ALL}) SELECT count(*) FROM l WHERE line LIKE '%info%'") == [
        (3,)
    ]


def test_outer_joins_keep_their_meaning(queries: SqlQueries) -> None:
    text = f"""SELECT a.line, b.line IS NULL FROM {ALL} a LEFT JOIN logql('{{app="pay"}}') b
               ON a.timestamp = b.timestamp WHERE a.stream['app'] = 'cart' OR b.line LIKE '%paid%'
               ORDER BY a.timestamp"""
    assert rows(queries, text) == [
        (LINES[0].text, True),
        (LINES[1].text, True),
        (LINES[2].text, False),
        (LINES[3].text, True),
    ]


def test_the_query_may_be_a_parameter(queries: SqlQueries) -> None:
    assert rows(queries, "SELECT count(*) FROM logql($q)", q='{app="pay"} |= "paid"') == [(1,)]


def test_units_and_workers_do_not_matter(lake: Lake) -> None:
    cut = sql_queries(lake, OneWorker(lake.worker()), lake.sandboxes(), gathering=GatherOptions(size=UnitSize(bytes=1)))
    text = f"SELECT stream['app'], count(*), max(timestamp) FROM {ALL} GROUP BY 1 ORDER BY 1"
    assert rows(cut, text) == rows(lake.engine(), text)


def test_only_the_own_organization(queries: SqlQueries) -> None:
    assert rows(queries, """SELECT line FROM logql('{app=~".+"}') WHERE line = 'theirs'""") == []
    assert rows(queries, """SELECT line FROM logql('{app=~".+"}')""", OTHER) == [("theirs",)]


def test_the_rules_of_the_organization_count(lake: Lake) -> None:
    own = lake.engine()
    asked = SqlQueries(own.engine, lake.sandboxes(), rules=lambda _: StreamRules(detect_levels=False))
    assert rows(asked, f"SELECT count(*) FROM {ALL} WHERE metadata['detected_level'] IS NOT NULL") == [(0,)]
    assert rows(own, f"SELECT count(*) FROM {ALL} WHERE metadata['detected_level'] IS NOT NULL") == [(len(LINES),)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT * FROM logql()", "logql takes one text"),
        ("SELECT * FROM logql(1)", "logql takes one text"),
        ("SELECT * FROM logql('a', 'b')", "logql takes one text"),
        ("SELECT * FROM logql('{')", "logql: .*syntax error"),
        ("SELECT * FROM logql('rate({a=\"b\"}[1m])')", "logql: "),
        ("SELECT nothing FROM logql('{a=\"b\"}')", "nothing"),
        ("SELECT logql('{a=\"b\"}')", "function logql is not available"),
    ],
)
def test_refused(queries: SqlQueries, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as raised:
        rows(queries, text)
    assert raised.value.position is not None


def test_refused_where_nothing_compiles_it() -> None:
    text = f"SELECT a.line FROM {ALL} a JOIN {ALL} b USING (line)"
    with pytest.raises(UserError, match="not available with engine=spark"):
        compile_spark(text, OWN, NOW)
    with pytest.raises(UserError, match="not available here"):
        compile_sql(text, OWN, NOW)
