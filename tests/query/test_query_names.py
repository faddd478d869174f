"""LakeQL's own words, answered as DuckDB answers their long form over a plain table: attributes by their quoted names,
search, parameters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.model.errors import UserError
from lakerunner.query.row_text import json_rows
from lakerunner.query.sql import Question, SqlQueries
from query.sample_lake import HOUR, NOW, OWN, START, Lake, Record, answer_of

STATUS = "coalesce(attributes['http.status_code'], resource_attrs['http.status_code'])"
POD = "coalesce(attributes['pod'], resource_attrs['pod'])"


def asked(engine: SqlQueries, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
    answer = engine.sql(OWN, Question(sql, NOW, parameters=parameters or {}))
    return pa.Table.from_batches(list(answer), schema=answer.schema)


def rows(table: pa.Table) -> list[bytes]:
    return sorted(row for batch in table.to_batches() for row in json_rows(batch))


@pytest.mark.parametrize(
    ("sql", "meaning"),
    [
        (
            'SELECT "http.status_code", count(*) n FROM logs GROUP BY "http.status_code" ORDER BY "http.status_code"',
            f'SELECT {STATUS} AS "http.status_code", count(*) AS n FROM logs GROUP BY {STATUS}',
        ),
        (
            'SELECT DISTINCT "pod" FROM logs WHERE "http.status_code" = \'404\' ORDER BY "pod"',
            f"SELECT DISTINCT {POD} AS \"pod\" FROM logs WHERE {STATUS} = '404'",
        ),
        (
            'SELECT l."http.Method", l."http.method" AS other FROM logs l WHERE l."ok" IS NOT NULL',
            "SELECT coalesce(attributes['http.Method'], resource_attrs['http.Method']) AS \"http.Method\", "
            "coalesce(attributes['http.method'], resource_attrs['http.method']) AS other FROM logs "
            "WHERE coalesce(attributes['ok'], resource_attrs['ok']) IS NOT NULL",
        ),
        (
            'SELECT try_cast("http.status_code" AS INTEGER) AS code, count(*) AS n FROM logs GROUP BY ALL',
            f"SELECT try_cast({STATUS} AS INTEGER) AS code, count(*) AS n FROM logs GROUP BY ALL",
        ),
        (
            'WITH e AS (SELECT * FROM logs WHERE "pod" = \'1\') SELECT "http.status_code" FROM e',
            f"SELECT {STATUS} AS \"http.status_code\" FROM logs WHERE {POD} = '1'",
        ),
        (
            'SELECT "pod", row_number() OVER (PARTITION BY "pod" ORDER BY fingerprint) AS n FROM logs',
            f'SELECT {POD} AS "pod", row_number() OVER (PARTITION BY {POD} ORDER BY fingerprint) AS n FROM logs',
        ),
        (
            'SELECT count(*) pod, count(DISTINCT "pod") AS d FROM logs WHERE "pod" IS NOT NULL ORDER BY pod',
            f"SELECT count(*) AS pod, count(DISTINCT {POD}) AS d FROM logs WHERE {POD} IS NOT NULL",
        ),
        (
            'SELECT count(*) pod FROM logs GROUP BY "pod" HAVING "pod" <> \'1\' ORDER BY "pod"',
            f"SELECT count(*) AS pod FROM logs GROUP BY {POD} HAVING {POD} <> '1'",
        ),
        (
            'SELECT flags pod, sum(1) OVER (PARTITION BY "pod" ORDER BY "pod") n FROM logs QUALIFY "pod" = \'1\'',
            f"SELECT flags AS pod, sum(1) OVER (PARTITION BY {POD} ORDER BY {POD}) n FROM logs QUALIFY {POD} = '1'",
        ),
        (
            'SELECT count(*) AS "pod" FROM logs GROUP BY severity ORDER BY "pod" LIMIT 1',
            "SELECT count(*) AS pod FROM logs GROUP BY severity ORDER BY pod LIMIT 1",
        ),
        ('SELECT "absent.key" FROM logs', 'SELECT CAST(NULL AS VARCHAR) AS "absent.key" FROM logs'),
        (
            "SELECT fingerprint FROM logs WHERE search('LOGGED user')",
            "SELECT fingerprint FROM logs WHERE message ILIKE '%logged%' AND message ILIKE '%user%'",
        ),
        (
            "SELECT fingerprint FROM logs WHERE search('\"12 logged in\"')",
            "SELECT fingerprint FROM logs WHERE message ILIKE '%12 logged in%'",
        ),
        (
            "SELECT fingerprint FROM logs WHERE NOT search('boom')",
            "SELECT fingerprint FROM logs WHERE message NOT ILIKE '%boom%'",
        ),
        ("SELECT count(*) AS n FROM logs WHERE search('100%')", "SELECT 0 AS n"),
    ],
)
def test_means_its_long_form(sql: str, meaning: str, engine: SqlQueries, plain: duckdb.DuckDBPyConnection) -> None:
    answer, expected = asked(engine, sql), plain.sql(meaning).to_arrow_table()
    assert answer.column_names == expected.column_names
    assert rows(answer) == rows(expected)
    assert expected.num_rows > 0


@pytest.mark.parametrize(
    ("sql", "parameters", "meaning"),
    [
        (
            "SELECT fingerprint FROM logs WHERE service_name = $1 AND severity_number > $2",
            {"1": "été", "2": 9},
            "SELECT fingerprint FROM logs WHERE service_name = 'été' AND severity_number > 9",
        ),
        (
            "SELECT fingerprint FROM logs WHERE service_name IN $names AND timestamp < $end",
            {"names": ["cart", "pay", None], "end": "2024-01-01T00:30:00Z"},
            "SELECT fingerprint FROM logs WHERE service_name IN ('cart', 'pay') AND timestamp < '2024-01-01 00:30:00'",
        ),
        (
            "SELECT fingerprint, ? AS t FROM logs WHERE attributes[?] = ? ORDER BY fingerprint LIMIT ?",
            {"1": True, "2": "http.Method", "3": 'we"ird\\\n', "4": 7},
            "SELECT fingerprint, true AS t FROM logs WHERE attributes['http.Method'] = 'we\"ird\\\n' "
            "ORDER BY fingerprint LIMIT 7",
        ),
        ("SELECT $n AS n FROM logs WHERE severity_number > $n LIMIT 1", {"n": -5}, "SELECT -5 AS n"),
        ("SELECT count(*) AS n FROM logs WHERE service_name IN $1", {"1": []}, "SELECT 0 AS n"),
        ("SELECT count(*) AS n FROM logs WHERE search($words)", {"words": "' OR true --"}, "SELECT 0 AS n"),
    ],
)
def test_parameters_stand_for_their_literals(
    sql: str, parameters: dict[str, Any], meaning: str, engine: SqlQueries, plain: duckdb.DuckDBPyConnection
) -> None:
    assert rows(asked(engine, sql, parameters)) == rows(plain.sql(meaning).to_arrow_table())


_values = st.one_of(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20),
    st.sampled_from(["'", "''", "\\'", '"', "$1", "?", "--", "/*", "'; DROP TABLE logs; --", "\\", "💥\n", "%_"]),
)


@settings(max_examples=60, deadline=None)
@given(value=_values)
def test_a_text_comes_back_as_it_was_given(value: str, engine: SqlQueries) -> None:
    assert asked(engine, "SELECT $1 AS x, $1 = $2 AS same", {"1": value, "2": value}).to_pylist() == [
        {"x": value, "same": True}
    ]


def test_a_question_with_a_parameter_too_many_is_refused(engine: SqlQueries) -> None:
    with pytest.raises(UserError, match=r"parameter \$2 is not in the query"):
        asked(engine, "SELECT $1", {"1": 1, "2": 2})


def test_segments_that_lack_what_is_wanted_are_not_read(tmp_path: Any) -> None:
    lake = Lake(tmp_path)
    lake.add([Record(START, service_name="cart", attributes=(("a.b", "x"),))])
    pay = lake.add([Record(START + HOUR, service_name="pay", message="other")])
    lake.store.delete([pay.path])
    engine = lake.engine()
    for condition in ("service_name = 'cart'", "attributes['a.b'] = 'x'", "\"a.b\" LIKE '%'", "service_name = $1"):
        parameters = {"1": "cart"} if "$" in condition else {}
        answer = asked(engine, f"SELECT service_name FROM logs WHERE {condition}", parameters)
        assert answer.to_pylist() == [{"service_name": "cart"}]


def test_a_key_that_record_and_resource_have_is_the_records(tmp_path: Any) -> None:
    lake = Lake(tmp_path)
    both = Record(START, attributes=(("k.k", "own"),), resource=(("k.k", "its resource's"),))
    lake.add([both, Record(START + 1, resource=(("k.k", "resource's"),)), Record(START + 2)])
    answer = answer_of(lake.engine(), 'SELECT "k.k" FROM logs ORDER BY timestamp')
    assert answer.to_pylist() == [{"k.k": "own"}, {"k.k": "resource's"}, {"k.k": None}]


def test_deliveries_are_there_for_those_who_name_them(lake: Lake, engine: SqlQueries) -> None:
    records = [record for record, _ in lake.records]
    shown = asked(engine, "SELECT delivery, delivery_row FROM logs").to_pylist()
    wanted = [(record.delivery, record.delivery_row) for record in records]
    assert sorted(((row["delivery"], row["delivery_row"]) for row in shown), key=repr) == sorted(wanted, key=repr)
    least = min(delivery for delivery, _ in wanted if delivery is not None)
    some = asked(engine, f"SELECT * FROM logs WHERE delivery = {least}")
    assert some.schema == asked(engine, "SELECT * FROM logs LIMIT 0").schema
    assert not {"delivery", "delivery_row"} & {*some.schema.names}
    assert some.num_rows == [delivery for delivery, _ in wanted].count(least) > 0


def test_a_star_leaves_out_the_hidden_column_and_not_another_of_its_name(engine: SqlQueries) -> None:
    joined = "FROM (SELECT DISTINCT delivery, 1 AS one FROM logs) x, logs l WHERE x.delivery = l.delivery"
    names = asked(engine, f"SELECT * {joined}").schema.names
    assert names[:3] == ["delivery", "one", "timestamp"]
    assert names.count("delivery") == 1
    assert asked(engine, f"SELECT l.* {joined}").schema.names == names[2:]


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT * EXCLUDE (delivery) FROM logs", "* does not show delivery: there is no need to exclude it"),
        ("SELECT delivery FROM (SELECT * FROM logs)", "there is no column delivery here"),
        ("SELECT delivery FROM spans", "spans has no column delivery"),
    ],
)
def test_hidden_columns_are_hidden(engine: SqlQueries, sql: str, reason: str) -> None:
    with pytest.raises(UserError, match=re.escape(reason)):
        asked(engine, sql)
