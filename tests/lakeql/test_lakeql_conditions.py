"""A scan may leave out every row that fails one of its conditions: the query's answer is the same as with all rows.

The rows and the WHERE are DuckDB's; whether a row meets a condition is worked out here, in Python.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import Any
from uuid import UUID

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.lakeql import compile_sql
from lakerunner.model.condition import (
    MOST_ALTERNATIVES,
    MOST_LITERALS,
    AllOf,
    AnyOf,
    Condition,
    Contains,
    Equals,
    Present,
    like_literals,
    regex_literals,
    regex_values,
)
from lakerunner.model.signal import Attribute
from lakerunner.model.text_index import fold
from lakerunner.plan.plan import Plan
from lakerunner.plan.scan import STORED, Scan, attribute_column, id_column, typed_column
from suites.plans import finish_of, leaf_sql

OWN = UUID("12340000-0000-4000-8000-000000000000")
MAPS = {"attributes": "attributes", "resource_attributes": "resource_attrs", "scope_attributes": "scope_attrs"}
SIGNS = "abAB1 .%_\\kK\u212asS\u017fi\u0130\u0131éÉ\n💥[]{}()|?*+^$'\""
Row = dict[str, Any]


def made_rows(count: int, seed: int) -> list[Row]:
    chance = random.Random(seed)

    def text(most: int) -> str:
        return "".join(chance.choice(SIGNS) for _ in range(chance.randrange(most)))

    def attributes() -> list[tuple[str, str]]:
        return [
            (key, chance.choice(["v", "V", "5", "abc", text(6)])) for key in ("k", "K", "n") if chance.random() < 0.5
        ]

    return [
        {
            "fingerprint": n,
            "service_name": chance.choice(["cart", "Cart", "pay", "", text(4)]),
            "message": chance.choice(["connection refused", "Connection Refused by peer", text(12), text(12)]),
            "severity": chance.choice(["INFO", "ERROR"]),
            "trace_id": chance.choice([None, "ab", "cd", "00"]),
            "attributes": attributes(),
            "resource_attrs": attributes(),
            "scope_attrs": attributes(),
        }
        for n in range(count)
    ]


ROWS = made_rows(120, 7)


def value_of(row: Row, column: str | Attribute) -> str | None:
    if isinstance(column, str):
        found: str | None = row[column]
        return found
    return dict(row[MAPS[column.scope]]).get(column.key)


def meets(row: Row, condition: Condition) -> bool:
    match condition:
        case Equals(column, values):
            return value_of(row, column) in values
        case Contains(column, literal, ignore_case, is_word):
            if is_word:  # with characters that belong to no word around it
                found = f" {value_of(row, column)} "
                return meets({**row, "message": found}, Contains("message", literal, ignore_case)) and any(
                    literal.lower() == word.lower() or not literal.isascii()
                    for word in re.findall("[0-9A-Za-z_\x80-\U0010ffff]+", found)
                )
            text = value_of(row, column)
            if text is None or not ignore_case:
                return text is not None and literal in text
            # Beyond ASCII nobody may conclude anything (model/text_index.py).
            parts = "".join(sign if sign.isascii() else "\0" for sign in literal).split("\0")
            return all(fold(part.encode()) in fold(text.encode()) for part in parts)
        case Present(attributes):
            return any(value_of(row, attribute) is not None for attribute in attributes)
        case AnyOf(conditions):
            return any(meets(row, one) for one in conditions)
        case AllOf(conditions):
            return all(meets(row, one) for one in conditions)
    raise AssertionError(f"SQL states no {condition}")


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"python_enable_replacements": "false"})
    map_ = pa.map_(pa.string(), pa.string())
    kinds = {"fingerprint": pa.int64(), **dict.fromkeys(MAPS.values(), map_)}
    table = {name: pa.array([row[name] for row in ROWS], kinds.get(name, pa.string())) for name in ROWS[0]}
    connection.register("given", pa.table(table))
    connection.execute("CREATE TABLE base AS SELECT * FROM given")
    return connection


def rows_of(scan: Scan, kept: list[int]) -> str:
    """The scan's relation over these rows."""
    shown = [f'"{column}"' for column in scan.columns]
    texts = {one: f"{MAPS[one.scope]}['{one.key.replace(chr(39), chr(39) * 2)}']" for one in scan.attributes}
    shown += [f'{text} AS "{attribute_column(scan.relation, attribute)}"' for attribute, text in texts.items()]
    for typed in scan.typed:
        text = f"coalesce({', '.join(texts[one] for one in typed.attributes)})"
        value = text if typed.type == STORED else f"TRY_CAST({text} AS {typed.type})"
        shown.append(f'{value} AS "{typed_column(scan.relation, typed)}"')
    shown += [f'unhex({column}) AS "{id_column(scan.relation, column)}"' for column in scan.ids]
    rows = ", ".join(map(str, kept)) or "-1"
    return f"SELECT {', '.join(shown) or 'NULL AS no_column'} FROM base WHERE fingerprint IN ({rows})"


def run(database: duckdb.DuckDBPyConnection, plan: Plan, *, pruned: bool) -> Counter[tuple[object, ...]]:
    """Each leaf over the rows that its scan must give, then the coordinator's SQL over what they give."""
    for leaf in plan.leaves:
        scan, conditions = leaf.scan, leaf.scan.conditions if pruned else ()
        kept = [row["fingerprint"] for row in ROWS if all(meets(row, one) for one in conditions)]
        database.execute(f"DROP TABLE IF EXISTS {scan.relation}")
        database.execute(f"CREATE TEMP VIEW {scan.relation} AS {rows_of(scan, kept)}")
        try:
            database.register("of_leaf", database.sql(leaf_sql(leaf)).to_arrow_table())
        finally:
            database.execute(f"DROP VIEW {scan.relation}")
        database.execute(f"CREATE TEMP TABLE {scan.relation} AS SELECT * FROM of_leaf")
    return Counter(database.execute(finish_of(plan).sql).fetchall())


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# Pieces of what is there, so that something is found.
messages = st.sampled_from([row["message"] for row in ROWS] + ["abc", ""])
pieces = st.builds(lambda text, at, size: text[at : at + size], messages, st.integers(0, 6), st.integers(0, 12))
words = st.one_of(
    pieces, st.sampled_from(["cart", "CART", "pay", "v", "5", "abc", "ab", "connection", "no such thing"])
)


@st.composite
def likes(draw: st.DrawFn) -> str:
    """A pattern made of a piece, some signs of it behind wildcards; with or without an escape."""
    escape = draw(st.sampled_from(["", "", "!", "\\", "a", "%"]))
    made = draw(st.sampled_from(["", "%"]))
    for sign in draw(words):
        plain = escape + sign if escape and (sign in "%_" or sign == escape) else sign
        made += draw(st.sampled_from([plain] * 8 + ["_", "%", sign + "%"]))
    made = (made if not escape or not made.endswith(escape) else made[: -len(escape)]) + draw(
        st.sampled_from(["", "%"])
    )
    return quoted(made) + (f" ESCAPE {quoted(escape)}" if escape else "")


@st.composite
def regexes(draw: st.DrawFn) -> str:
    made = draw(st.sampled_from(["", "", ".*", "(?i)", "(?s)", "^", "x|", "(?:a|.*)", "(?i:.*)"]))
    for sign in draw(words):
        plain = "\\" + sign if sign in "\\.[](){}?*+|^$" or (sign in "%_'\" " and draw(st.booleans())) else sign
        safe = sign if sign not in "\\]^[" else "."
        ways = [plain] * 12 + [".", f"[{safe}]", f"[^{safe}x]?", f"[]{safe}]", f"{plain}?", f"{plain}*", f"({plain})"]
        ways += [
            f"(?:{plain}|q)?",
            f"{plain}+",
            f"{plain}{{1}}",
            f"{plain}{{0,2}}",
            "\\s?",
            "[[:alpha:]]*",
            "[(]?",
            "(?i)",
        ]
        ways += [f"{plain}|{plain}", "(\\)|.)", "([)]|.)", "\\Qa.\\E", "\\x{61}", "$", "\\b", "q{,2}", f"{plain}+?"]
        made += draw(st.sampled_from(ways))
    return quoted(made + draw(st.sampled_from(["", "", ".*", "$"])))


texts = ["service_name", "message", "severity", "lower(message)", "upper(service_name)", "(message)"]
attributes = ["attributes['k']", "attributes['K']", "resource_attrs['k']", "lower(attributes['k'])"]
either = ["coalesce(attributes['k'], resource_attrs['k'])", "coalesce(attributes['k'], 'v')"]


def comparisons(qualifier: str) -> st.SearchStrategy[str]:
    def of(column: str) -> str:
        for name in ("service_name", "message", "severity", "attributes", "resource_attrs", "trace_id"):
            column = column.replace(name, f"{qualifier}{name}")
        return column

    column = st.sampled_from([of(one) for one in [*texts, *attributes, *either]])
    only_attributes = st.sampled_from([of(one) for one in [*attributes, *either]])
    literal = words.map(quoted)
    no = st.sampled_from(["", "", "NOT "])
    calls = st.sampled_from(["contains", "starts_with", "prefix", "ends_with", "suffix"])
    one_word = st.sampled_from(["connection", "Refused", "ab", "abc", "aB1", "peer", "cart", "é", "refuse"]).map(quoted)
    regex_calls = st.sampled_from(["regexp_matches", "regexp_full_match"])
    flags = st.sampled_from(["", "", ", 'i'", ", 'c'", ", 's'", ", 'l'", ", 'cims'"])
    operators = st.sampled_from(["=", "=", "<>", "<", ">=", "IS NOT DISTINCT FROM", "IS DISTINCT FROM"])
    return st.one_of(
        st.builds(lambda c, o, v: f"{c} {o} {v}", column, operators, literal),
        st.builds(lambda c, v: f"{v} = {c}", column, literal),
        st.builds(lambda c, no, v, w: f"{c} {no}IN ({v}, {w}, NULL)", column, no, literal, literal),
        st.builds(lambda c, no, p: f"{c} {no}LIKE {p}", column, no, likes()),
        st.builds(lambda c, no, p: f"{c} {no}ILIKE {p}", column, no, likes()),
        st.builds(lambda f, c, v: f"{f}({c}, {v})", calls, column, literal),
        st.builds(lambda c, w: f"has_token({c}, {w})", st.sampled_from([of(one) for one in texts[:4]]), one_word),
        st.builds(lambda f, c, p, x: f"{f}({c}, {p}{x})", regex_calls, column, regexes(), flags),
        st.builds(lambda c, o, p: f"{c} {o} {p}", column, st.sampled_from(["~", "SIMILAR TO", "!~"]), regexes()),
        st.builds(
            lambda no, v: f"{of('trace_id')} {no}IN ({v}, 'AB')", no, st.sampled_from(["'ab'", "'CD'", "'no'", "''"])
        ),
        st.builds(lambda c, no: f"{c} IS {no}NULL", only_attributes, st.sampled_from(["", "NOT "])),
        st.builds(lambda c, no: f"{no}try_cast({c} AS INTEGER) + 1 >= 2", only_attributes, no),
        st.builds(lambda c, no: f"{c} {no}BETWEEN 'a' AND {of('message')}", only_attributes, no),
        st.builds(lambda c, d: f"{c} = {d}", only_attributes, only_attributes),
        st.builds(lambda c: f"CASE WHEN {c} = 'v' THEN false ELSE true END", only_attributes),
        st.builds(lambda c, no: f"{no}{c} = ANY (SELECT x FROM (VALUES ('v')) t(x) WHERE false)", only_attributes, no),
    )


def conditions(*qualifiers: str) -> st.SearchStrategy[str]:
    leaf = st.one_of(*(comparisons(qualifier) for qualifier in qualifiers))
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.builds(lambda a, b: f"({a} AND {b})", inner, inner),
            st.builds(lambda a, b: f"({a} OR {b})", inner, inner),
            st.builds(lambda a, b: f"({a} OR {b})", inner, inner),
            st.builds(lambda a: f"NOT ({a})", inner),
        ),
        max_leaves=5,
    )


near = "a.fingerprint % 7 = b.fingerprint % 7"
queries = st.one_of(
    st.builds(lambda c: f"SELECT fingerprint FROM logs WHERE {c}", conditions("")),
    st.builds(lambda c: f"SELECT fingerprint FROM logs WHERE {c}", conditions("")),
    st.builds(lambda c: f"SELECT count(*), max(message) FROM logs l WHERE {c}", conditions("l.")),
    st.builds(
        lambda j, on, c: f"SELECT a.fingerprint, b.fingerprint FROM logs a {j} logs b ON {near} AND {on} WHERE {c}",
        st.sampled_from(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]),
        conditions("a.", "b."),
        conditions("a.", "b."),
    ),
    st.builds(
        lambda c, d: f"SELECT fingerprint FROM logs a WHERE {c} AND EXISTS (SELECT 1 FROM logs b WHERE {near} AND {d})",
        conditions("a."),
        conditions("a.", "b."),
    ),
)


@settings(max_examples=150, deadline=None)
@given(sql=queries)
def test_answers_with_and_without_the_rows_that_fail_are_equal(sql: str, database: duckdb.DuckDBPyConnection) -> None:
    plan = compile_sql(sql, OWN, 0)
    try:
        whole = run(database, plan, pruned=False)
    except (duckdb.InvalidInputException, duckdb.SyntaxException):  # a pattern that DuckDB cannot read
        return
    assert run(database, plan, pruned=True) == whole, plan.scans


@pytest.mark.parametrize(
    ("pattern", "choices"),
    [
        ("connection refused", [("connection refused",)]),
        ("connect(ion)? refused", [(" refused", "connect")]),
        ("colou?r is", [("colo", "r is")]),
        ("abc+def", [("abc", "def")]),
        (r"10\.0\.0\.1", [("10.0.0.1",)]),
        (r"a\dbcd[xyz]efg", [("bcd", "efg")]),
        ("abc|def", [("abc",), ("def",)]),
        ("abc.*x|def.ghi", [("abc",), ("def", "ghi")]),
        ("(abc|def)ghi", [("abcghi",), ("defghi",)]),
        ("x(?P<word>abc|def)+ghi", [("xabc", "ghi"), ("xdef", "ghi")]),
        ("(?:ab(?:c|d)|efg)", [("abc",), ("abd",), ("efg",)]),
        ("abc|", [()]),
        ("abc|.*", [()]),
        ("(abc|def)?", [()]),
        ("(abc|d)", [()]),
        ("|".join(f"word{n}" for n in range(65)), [()]),
        ("(abc|def)" * 7, [("abc" * 6,)]),
        ("abc[[:alpha:]]def", [("abc", "def")]),
        (r"abc\Q.*\Edef", [()]),
        (r"abc\x41def", [()]),
        ("abc{2}def", [("def",)]),
        ("abc{,2}def", [()]),
        ("(unclosed abc", [()]),
        ("abc)def", [()]),
        ("ab", [()]),
        ("(" * 5000 + "abc" + ")" * 5000, [()]),
    ],
)
def test_literals_of_a_regular_expression(pattern: str, choices: list[tuple[str, ...]]) -> None:
    found = regex_literals(pattern).choices
    if pattern.startswith("(abc|def)("):
        assert len(found) == MOST_ALTERNATIVES
        choices = list(found[:1])
        assert found[0] == ("abc" * 6,)
    assert list(found if len(found) < MOST_ALTERNATIVES else found[:1]) == choices


@pytest.mark.parametrize(
    ("pattern", "values"),
    [
        ("cart", ("cart",)),
        ("cart|pay|cart", ("cart", "pay")),
        ("(?:cart|pay)", ("cart", "pay")),
        (r"pay-(eu|us)\.1", ("pay-eu.1", "pay-us.1")),
        ("pay.*", ()),
        ("(?i)pay", ()),
        ("pay|", ("pay", "")),
        ("pa[y]", ()),
    ],
)
def test_texts_that_a_regular_expression_can_match(pattern: str, values: tuple[str, ...]) -> None:
    assert regex_values(pattern) == values


def test_only_the_longest_literals_are_kept() -> None:
    runs = [str(n) * (n + 3) for n in range(MOST_LITERALS + 1)]
    assert like_literals("%".join(runs)) == tuple(reversed(runs[1:]))
