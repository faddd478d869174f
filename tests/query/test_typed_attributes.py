"""Attributes by their stored type: the answers are those of their texts, however segments store them."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakerunner.model.errors import UserError
from lakerunner.model.signal import Attribute
from lakerunner.model.time import ALL_TIME
from lakerunner.plan.scan import STORED, Scan, TypedAttributes
from lakerunner.query.segment_cache.relation import relation_sql
from lakerunner.query.worker import QueryWorker
from query.sample_lake import START, Lake, Record, Shred, answer_of

TEXT = "coalesce(attributes['code'], resource_attrs['code'])"  # as the attribute is documented
WHOLE = [200, 404, 500, 500, 0, -7, 2**53 + 1, -(2**63), 2**63 - 1]
DOUBLES = [2.5, 3.5, -0.0, 0.0, 500.0, 1e16, math.nan, math.inf, -math.inf]
TEXTS = ["500", "0500", " 500", "500.0", "-7", "abc", "", "1e3", "true", "9007199254740993"]
LAYOUTS: dict[str, tuple[list[Any], str | None]] = {
    "whole": (WHOLE, "int64"),
    "whole_and_texts": ([*WHOLE, *TEXTS], "int64"),
    "doubles": (DOUBLES, "double"),
    "doubles_and_whole": ([*DOUBLES, *WHOLE], "double"),
    "texts": ([*TEXTS, *WHOLE], "string"),
    "truths": ([True, False, True], "bool"),
    "in_the_map": ([*WHOLE, *DOUBLES, *TEXTS, None, b"500", (1, "x")], None),
    "absent": ([], None),
}
# {k} is the attribute; {number} the attribute where it is compared with a number, which is a cast of the text.
QUERIES = (
    "SELECT {k} AS k, count(*) AS n FROM logs GROUP BY 1",
    "SELECT DISTINCT {k} AS k FROM logs",
    "SELECT {k} AS k, service_name, min(message) AS t FROM logs GROUP BY ALL HAVING count(*) > 1",
    "SELECT {k} AS k, count(*) AS n FROM logs WHERE {k} <> '500' GROUP BY {k}",
    "SELECT count(*) AS n FROM logs WHERE {k} = '500'",
    "SELECT {k} AS k FROM logs WHERE {k} IN ('500', '-7', '0') OR {k} = '0500'",
    "SELECT {k} AS k FROM logs WHERE {k} NOT IN ('500', '404')",
    "SELECT {k} AS k FROM logs WHERE try_cast({k} AS INTEGER) >= 404",
    "SELECT try_cast({k} AS BIGINT) AS b, count(*) AS n FROM logs GROUP BY 1",
    "SELECT sum(try_cast({k} AS HUGEINT)) AS s, count(try_cast({k} AS TINYINT)) AS n FROM logs",
    "SELECT max(try_cast({k} AS DOUBLE)) FILTER (WHERE {k} <> '500') AS m FROM logs",
    "SELECT {k} AS k FROM logs WHERE {number} >= 404",
    "SELECT {k} AS k FROM logs WHERE {number} = 500",
    "SELECT count(*) AS n FROM logs WHERE {number} IS DISTINCT FROM 500",
    "SELECT {k} AS k FROM logs WHERE {number} IN (-7, 0, 2.5)",
    "SELECT {number} < 500 AS low, count(*) AS n FROM logs GROUP BY 1",
    "SELECT count(*) AS n FROM logs WHERE {number} NOT BETWEEN -1e3 AND 499.5",
    "SELECT count(*) FILTER (WHERE {number} > 9007199254740) AS n FROM logs",
    "SELECT a.message AS m FROM logs a LEFT JOIN logs b ON a.message = b.message AND b.severity = 'INFO' "
    "WHERE try_cast(a.attributes['code'] AS DOUBLE) > 3",
)


def add(lake: Lake, values: list[Any], kind: str | None, name: str) -> None:
    """Half of the rows have the attribute, some their resource too; one row of each segment has a rare attribute."""
    rows = [
        Record(
            START + n,
            message=f"{name}-{n}",
            attributes=(("code", value),) if n % 5 else (("code", value), ("zz.rare", n)),
            resource=(("service.name", "shop"), ("code", "resource")) if n % 3 == 0 else (("service.name", "shop"),),
        )
        for n, value in enumerate(values)
    ]
    rows += [Record(START + n, message=f"{name}--{n}", resource=(("code", 500),)) for n in range(2)]
    rows += [Record(START + 9, message=f"{name}---")]
    resource = {"code": "int64"} if kind == "int64" else {}
    lake.add(rows, shred=Shred({"code": kind} if kind else {}, resource))


def lake_of(directory: Path, *names: str) -> Lake:
    lake = Lake(directory)
    for name in names:
        add(lake, *LAYOUTS[name], name)
    return lake


def rows(table: pa.Table) -> Counter[str]:
    return Counter(map(repr, table.to_pylist()))


@pytest.mark.parametrize("names", [*((name,) for name in LAYOUTS), tuple(LAYOUTS)], ids="-".join)
def test_answers_are_those_of_the_texts(tmp_path: Path, names: tuple[str, ...]) -> None:
    lake = lake_of(tmp_path, *names)
    engine, plain = lake.engine(), lake.plain()
    for query in QUERIES:
        ours = answer_of(engine, query.format(k='"code"', number='"code"'))
        theirs = plain.sql(query.format(k=TEXT, number=f"try_cast({TEXT} AS DOUBLE)")).to_arrow_table()
        assert ours.schema.types == theirs.schema.types, query
        assert rows(ours) == rows(theirs), query


def test_a_number_that_a_double_does_not_hold_needs_a_cast(tmp_path: Path) -> None:
    engine = lake_of(tmp_path, "whole").engine()
    with pytest.raises(
        UserError, match="VARCHAR and INTEGER cannot be compared: attributes are text, cast them as in "
    ):
        answer_of(engine, 'SELECT count(*) AS n FROM logs WHERE "code" >= 9007199254740993')
    asked = 'SELECT count(*) AS n FROM logs WHERE try_cast("code" AS BIGINT) {} 9007199254740993'
    counts = {sign: answer_of(engine, asked.format(sign)).to_pylist()[0]["n"] for sign in ("=", ">=", ">")}
    assert counts == {"=": 1, ">=": 2, ">": 1}


def only_whole(lake: Lake) -> None:
    """A segment as ingest makes it where all values are whole numbers: the maps are there, and empty."""
    records = [Record(START + n, attributes=(("code", n % 3),)) for n in range(9)]
    lake.add(records, shred=Shred({"code": "int64"}, {"service.name": "string"}))


def relation_of(lake: Lake, scan: Scan) -> str:
    """As a worker makes it, with what the footers of the files say."""
    worker: QueryWorker = lake.worker()
    with worker.cache.hold(scan, lake.all) as held:
        return relation_sql(scan, lake.all, held.files, in_order=False)


CODE = (Attribute("attributes", "code"), Attribute("resource_attributes", "code"))
SCAN = Scan("s", "logs", ALL_TIME, (), CODE, typed=(TypedAttributes(CODE, STORED), TypedAttributes(CODE, "DOUBLE")))


def test_whole_numbers_become_no_text_and_no_map_is_read(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    only_whole(lake)
    only_whole(lake)
    sql = relation_of(lake, SCAN)
    assert '"attributes.code" AS "s.attributes[code]|s.resource_attributes[code].stored"' in sql
    assert "typed_text" not in sql
    number = 'CASE WHEN "attributes.code" IS NOT NULL THEN TRY_CAST("attributes.code" AS DOUBLE) END'
    assert f'{number} AS "s.attributes[code]|s.resource_attributes[code].DOUBLE"' in sql


def test_one_segment_with_other_values_makes_texts_of_all(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    only_whole(lake)
    lake.add([Record(START, attributes=(("code", "x"),))], shred=Shred({"code": "string"}))
    stored = 'AS "s.attributes[code]|s.resource_attributes[code].stored"'
    sql = relation_of(lake, SCAN)
    assert f'CAST("attributes.code" AS VARCHAR) {stored}' in sql
    assert f'"attributes.code" {stored}' in sql
