"""Random SQL over `logs` from a grammar: the same seed gives the same query.

Every query has one right answer: what is cut by LIMIT is in a total order, what depends on an order says it, and no
floating sum stands where the coordinator itself would make it. `{time}` stands where a function takes `timestamp`
to the microsecond: LakeQL cuts the nanoseconds, plain DuckDB must be told to.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import TypeVar

KEYS = ("http.status_code", "http.Method", "http.method", "ok", "raw", "absent", "it''s")
TEXTS = ("service_name", "severity", "message", "collector", "trace_id")
ORDER = "timestamp, fingerprint"
T = TypeVar("T")


class RandomSql:
    """`spark`: only what the Spark engine takes too."""

    def __init__(self, seed: int, *, spark: bool = False) -> None:
        self._chance = random.Random(seed)
        self._spark = spark
        self._fractions = spark or self._often()

    def query(self) -> str:
        kinds = [self.rows, self.first_rows, self.groups, self.groups, self.buckets, self.distinct, self.joined]
        kinds += [self.common, self.windowed, self.united, self.inside, self.total]
        return self._one(kinds)()

    # Queries

    def rows(self) -> str:
        return f"SELECT {self._columns()} FROM logs{self._where()}"

    def first_rows(self) -> str:
        direction = self._one(["", " DESC"])
        order = f"timestamp{direction}, fingerprint" if self._often() else f"{self._text()}{direction}, {ORDER}"
        offset = f" OFFSET {self._chance.randrange(20)}" if self._often() else ""
        return (
            f"SELECT {self._columns()}, fingerprint FROM logs{self._where()} "
            f"ORDER BY {order} LIMIT {self._chance.randrange(60)}{offset}"
        )

    def groups(self) -> str:
        keys = [self._key() for _ in range(self._chance.randrange(1, 3))]
        shown = [f"{key} AS k{n}" for n, key in enumerate(keys)]
        group = self._one([", ".join(f"k{n}" for n in range(len(keys))), ", ".join(keys), "ALL"])
        having = f" HAVING {self._one(['count(*) > 2', 'max(severity_number) > 9'])}" if self._seldom() else ""
        order = f" ORDER BY {', '.join(f'k{n}' for n in range(len(keys)))}"
        limit = f"{order} LIMIT {self._chance.randrange(1, 8)}" if self._seldom() else ""
        return (
            f"SELECT {', '.join(shown + self._aggregates())} FROM logs{self._where()} GROUP BY {group}{having}{limit}"
        )

    def buckets(self) -> str:
        unit = self._one(["second", "minute", "hour", "day"])
        key = self._one([f"date_trunc('{unit}', {{time}})", "time_bucket(INTERVAL '7 minutes', {time})"])
        further = f", {self._text()} AS k" if self._often() else ""
        order = self._one(["", f" ORDER BY t DESC{', k' if further else ''}", f" ORDER BY t{', k' if further else ''}"])
        limit = f" LIMIT {self._chance.randrange(1, 9)}" if order and self._often() else ""
        aggregates = ", ".join(self._aggregates())
        return f"SELECT {key} AS t{further}, {aggregates} FROM logs{self._where()} GROUP BY ALL{order}{limit}"

    def distinct(self) -> str:
        return f"SELECT DISTINCT {self._key()} AS a, {self._key()} AS b FROM logs{self._where()}"

    def total(self) -> str:
        return f"SELECT {', '.join(self._aggregates())} FROM logs{self._where()}"

    def joined(self) -> str:
        kind = self._one(["JOIN", "LEFT JOIN", "FULL JOIN"])
        key = self._one(["service_name", "severity"])
        one, other = (f"(SELECT {key}, {self._aggregate()} AS x FROM logs{self._where()} GROUP BY 1)" for _ in range(2))
        on = f"a.{key} = b.{key}"
        return f"SELECT a.{key} AS k, b.{key} AS l, a.x AS x, b.x AS y FROM {one} a {kind} {other} b ON {on}"

    def common(self) -> str:
        return (
            f"WITH e AS (SELECT service_name, severity, severity_number AS n FROM logs{self._where()}) "
            "SELECT service_name, count(*) AS n, max(n) AS most FROM e "
            "WHERE severity <> 'WARN' GROUP BY service_name"
        )

    def windowed(self) -> str:
        call = self._one(["row_number()", "lag(severity_number)", "sum(severity_number)", "rank()"])
        return (
            f"SELECT fingerprint, {call} OVER (PARTITION BY {self._text()} ORDER BY {ORDER}) AS w "
            f"FROM logs{self._where()}"
        )

    def united(self) -> str:
        how = self._one(["UNION ALL", "UNION", "EXCEPT", "INTERSECT"])
        return (
            f"SELECT {self._text()} AS x FROM logs{self._where()} {how} SELECT {self._text()} FROM logs{self._where()}"
        )

    def inside(self) -> str:
        inner = f"SELECT service_name FROM logs{self._where()}"
        return f"SELECT severity, count(*) AS n FROM logs WHERE service_name IN ({inner}) GROUP BY severity"

    # Their parts

    def _columns(self) -> str:
        made = [f"{self._one([self._text, self._number, self._attribute])()} AS c{n}" for n in range(3)]
        return ", ".join(made)

    def _aggregates(self) -> list[str]:
        return [f"{self._aggregate()} AS a{n}" for n in range(self._chance.randrange(1, 4))]

    def _aggregate(self) -> str:
        number = self._number()
        calls = ["count(*)", f"count({self._attribute()})", f"sum({number})", f"min({number})", f"max({number})"]
        calls += [f"avg({number})", f"count(DISTINCT {self._text()})", f"max({self._text()})", "min(timestamp)"]
        if self._fractions:
            calls += [f"sum({self._fraction()})", f"avg({self._fraction()})"]
        else:
            calls += [f"median({number})", "bool_or(severity_number > 9)", "arg_max(message, fingerprint)"]
        call = self._one(calls)
        return f"{call} FILTER (WHERE {self._condition(1)})" if self._seldom() else call

    def _key(self) -> str:
        keys: list[Callable[[], str]] = [
            self._text,
            self._attribute,
            lambda: "severity_number",
            lambda: "length(message)",
        ]
        return self._one(keys)()

    def _text(self) -> str:
        name = self._one(TEXTS)
        return self._one([name, name, f"upper({name})", f"coalesce({name}, '-')"])

    def _attribute(self) -> str:
        scope, key = ("attributes", self._one(KEYS)) if self._often() else ("resource_attrs", "pod")
        return f"{scope}['{key}']"

    def _number(self) -> str:
        return self._one(["severity_number", "length(message)", "severity_number * 2 - 1", "severity_number % 4"])

    def _fraction(self) -> str:
        return self._one(["severity_number / 7.0::DOUBLE", "length(message) * 0.1::DOUBLE"])

    def _where(self) -> str:
        return f" WHERE {self._condition(2)}" if self._often() else ""

    def _condition(self, depth: int) -> str:
        if depth and self._seldom():
            return f"({self._condition(depth - 1)} {self._one(['AND', 'OR'])} {self._condition(depth - 1)})"
        if depth and self._seldom():
            return f"NOT ({self._condition(depth - 1)})"
        return self._one(
            [
                f"service_name = '{self._one(['cart', 'shop', 'nobody', 'été'])}'",
                f"service_name IN ('cart', '{self._one(['pay', 'none'])}')",
                f"severity <> '{self._one(['INFO', 'ERROR'])}'",
                f"severity_number BETWEEN {self._chance.randrange(10)} AND {self._chance.randrange(20)}",
                f"message LIKE '%{self._one(['logged', 'boom', '12', 'zzz', 'quoted'])}%'",
                f"message ILIKE '{self._one(['USER%', '%BOOM', '%x%'])}'",
                f"{self._attribute()} = '{self._one(['200', 'GET', 'true', 'lower', '1'])}'",
                f"{self._attribute()} IS {self._one(['', 'NOT '])}NULL",
                f"timestamp >= '2024-01-01T0{self._chance.randrange(4)}:{self._chance.randrange(10, 60)}:00Z'",
                f"timestamp < '2024-01-01 0{self._chance.randrange(4)}:{self._chance.randrange(10, 60)}:00'",
                f"trace_id IS {self._one(['', 'NOT '])}NULL",
                # Workers cannot check these, and so make no sums under them.
                *([] if self._fractions else ["severity_number > (SELECT 9)", "(message = '' OR flags > (SELECT 9))"]),
            ]
        )

    def _one(self, choices: Iterable[T]) -> T:
        return self._chance.choice(list(choices))

    def _often(self) -> bool:
        return self._chance.random() < 0.7

    def _seldom(self) -> bool:
        return self._chance.random() < 0.25
