"""Ids and severities compare wherever a query can compare: literals of either case, lists, rows, subqueries, calls."""

from __future__ import annotations

from typing import Any

import pytest

from lakerunner.query.sql import SqlQueries
from query.sample_lake import START, Lake, Record, answer_of

ID, SPAN, OTHER_ID = "AB" * 16, "CD" * 8, "ac" * 16


@pytest.fixture(scope="module")
def ids(tmp_path_factory: pytest.TempPathFactory) -> SqlQueries:
    lake = Lake(tmp_path_factory.mktemp("ids"))
    first = Record(START, message="first", severity="ERROR", trace_id=bytes.fromhex(ID), span_id=bytes.fromhex(SPAN))
    second = Record(START + 1, message="second", severity="WARN", trace_id=bytes.fromhex(OTHER_ID), span_id=b"8 signs!")
    lake.add([first, second, Record(START + 2, message="third", attributes=(("id", ID.lower()),))])
    return lake.engine()


FIRST, BOTH, NOT_THE_FIRST = ["first"], ["first", "second"], ["second"]
CONDITIONS = {
    "trace_id IN (SELECT trace_id FROM logs WHERE severity = 'ERROR')": FIRST,
    "trace_id NOT IN (SELECT trace_id FROM logs WHERE severity = 'ERROR')": NOT_THE_FIRST,
    "trace_id IN (SELECT attributes['id'] FROM logs)": FIRST,
    "attributes['id'] IN (SELECT trace_id FROM logs)": ["third"],
    f"'{ID}' IN (SELECT trace_id FROM logs i WHERE i.message = o.message)": FIRST,
    "trace_id = ANY (SELECT trace_id FROM logs WHERE severity = 'ERROR')": FIRST,
    f"'{ID}' = ANY (SELECT trace_id FROM logs i WHERE i.message = o.message)": FIRST,
    f"trace_id = ANY (['{ID}', 'FF'])": FIRST,
    f"trace_id IN ['{ID}']": FIRST,
    f"trace_id IN ('{ID}', NULL)": FIRST,
    f"trace_id IN ('{ID}', service_name)": FIRST,
    f"'{ID}' IN (span_id, trace_id)": FIRST,
    f"(trace_id, span_id) IN (('{ID}', '{SPAN}'))": FIRST,
    f"(trace_id, span_id) = ('{ID}', '{SPAN}')": FIRST,
    f"'{ID}' = trace_id": FIRST,
    f"trace_id = CAST('{ID}' AS VARCHAR)": FIRST,
    f"trace_id = from_hex('{ID}')": FIRST,
    f"trace_id <> '{ID}'": NOT_THE_FIRST,
    f"trace_id IS DISTINCT FROM '{ID}'": ["second", "third"],
    f"trace_id BETWEEN '{ID}' AND 'AC'": FIRST,
    "trace_id >= 'AC'": NOT_THE_FIRST,
    "trace_id LIKE 'ABAB%'": FIRST,
    "trace_id NOT LIKE 'ABAB%'": NOT_THE_FIRST,
    "starts_with(trace_id, 'AB') AND prefix(trace_id, 'AB') AND trace_id ^@ 'AB' AND contains(trace_id, 'BA')": FIRST,
    "lower(trace_id) LIKE 'ab%' AND upper(trace_id) LIKE 'AB%'": FIRST,
    f"concat(trace_id, '/', span_id) = '{ID.lower()}/{SPAN.lower()}'": FIRST,
    f"list_contains(['{ID}'], trace_id)": FIRST,
    f"nullif(trace_id, '{ID}') IS NULL": ["first", "third"],
    f"coalesce(trace_id, 'none') = '{ID}'": FIRST,
    "coalesce(trace_id, 'none') = 'none'": ["third"],
    "coalesce(trace_id, 'FACE') = 'FACE'": ["third"],
    f"CASE trace_id WHEN '{ID}' THEN true END": FIRST,
    f"CASE WHEN severity = 'ERROR' THEN trace_id ELSE span_id END = '{ID}'": FIRST,
    f"(SELECT max(trace_id) FROM logs i WHERE i.message = o.message) = '{ID}'": FIRST,
    f"trace_id IN (SELECT x FROM (SELECT trace_id x FROM logs UNION SELECT span_id FROM logs) WHERE x = '{ID}')": FIRST,
    "severity = 'error'": FIRST,
    "severity IN ('Warn', 'eRROR')": BOTH,
    "severity <> 'info' AND severity > 'debug' AND severity BETWEEN 'e' AND 'Z'": BOTH,
    "severity LIKE 'err%'": FIRST,
    "severity NOT LIKE 'err%' AND severity LIKE '%!%' ESCAPE '!'": [],
    "starts_with(severity, 'er')": FIRST,
    "CASE severity WHEN 'error' THEN true END": FIRST,
    "lower(severity) = 'error' AND severity ILIKE 'Error'": FIRST,
    "severity_text = 'error'": [],
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_conditions(condition: str, ids: SqlQueries) -> None:
    answer = answer_of(ids, f"SELECT message FROM logs o WHERE {condition} ORDER BY message")
    assert answer.column("message").to_pylist() == CONDITIONS[condition]


ANSWERS: dict[str, list[dict[str, Any]]] = {
    f"SELECT trace_id, count(*) AS n FROM logs GROUP BY trace_id HAVING trace_id = '{ID}'": [
        {"trace_id": ID.lower(), "n": 1}
    ],
    f"SELECT trace_id, trace_id = '{ID}' AS same FROM logs GROUP BY trace_id ORDER BY trace_id = '{ID}'": [
        {"trace_id": OTHER_ID, "same": False},
        {"trace_id": ID.lower(), "same": True},
        {"trace_id": None, "same": None},
    ],
    f"SELECT message FROM logs QUALIFY trace_id = '{ID}' AND row_number() OVER (ORDER BY trace_id = '{ID}' DESC) = 1": [
        {"message": "first"}
    ],
    f"SELECT count(*) FILTER (WHERE trace_id = '{ID}') AS n, max(trace_id) = '{OTHER_ID.upper()}' AS last FROM logs": [
        {"n": 1, "last": True}
    ],
    f"SELECT trace_id FROM logs INTERSECT SELECT '{ID}'": [{"trace_id": ID.lower()}],
    f"SELECT trace_id FROM logs WHERE trace_id IS NOT NULL EXCEPT SELECT '{ID}'": [{"trace_id": OTHER_ID}],
    "SELECT severity FROM logs INTERSECT SELECT 'error'": [{"severity": "ERROR"}],
    "SELECT trace_id FROM logs WHERE severity = 'ERROR' UNION SELECT \"id\" FROM logs WHERE message = 'third'": [
        {"trace_id": ID.lower()}
    ],
    "SELECT severity, count(*) AS n FROM logs GROUP BY severity HAVING severity = 'error'": [
        {"severity": "ERROR", "n": 1}
    ],
}


@pytest.mark.parametrize("sql", ANSWERS)
def test_answers(sql: str, ids: SqlQueries) -> None:
    assert answer_of(ids, sql).to_pylist() == ANSWERS[sql]
