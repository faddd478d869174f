"""Every specifier of strftime that a query may use writes exactly the bytes it should, wherever it stands.

The oracle is arithmetic on days, not DuckDB: a specifier that reserves more bytes than it writes shows memory of the
process there. The heap is salted with marks before each call, so that such bytes cannot be zeros by luck.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import duckdb
import pytest

from lakerunner.lakeql.functions import NANOSECONDS, SPECIFIERS, format_problem

DAY_US = 86_400_000_000
DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
# Microseconds: the epoch, the last of a year and of a leap day, year 1, five and six digits of a year, years before
# Christ, the least and the largest that DuckDB has.
TIMES = (
    *(0, -1, 1_704_164_645_678_901, 1_735_603_199_999_999, 1_709_208_000_000_001, -62_135_596_800_000_000),
    *(253_402_300_799_999_999, 253_402_300_800_000_000, 9_223_372_036_854_775_806, -62_149_000_000_000_000),
    *(-63_500_000_000_000_009, -219_000_000_000_000_000, -9_223_372_022_400_000_000, 1_104_541_261_000_009),
)


def civil(days: int) -> tuple[int, int, int]:
    """Year, month and day of the proleptic Gregorian calendar; day 0 is 1970-01-01."""
    days += 719_468
    era, of_era = divmod(days, 146_097)
    year = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return year + era * 400 + (month <= 2), month, of_year - (153 * shifted + 2) // 5 + 1


def january_first(year: int) -> int:
    before = year - 1
    return before * 365 + before // 4 - before // 100 + before // 400 - 719_162


def iso_week(days: int) -> tuple[int, int]:
    thursday = days - (days + 3) % 7 + 3
    year = civil(thursday)[0]
    return year, (thursday - january_first(year)) // 7 + 1


def oracle(us: int) -> dict[str, str]:
    days, of_day = divmod(us, DAY_US)
    seconds, fraction = divmod(of_day, 1_000_000)
    hour, minute, second = seconds // 3600, seconds // 60 % 60, seconds % 60
    year, month, day = civil(days)
    of_year = days - january_first(year) + 1
    weekday = (days + 4) % 7  # of Sunday, 0; day 0 was a Thursday
    iso_year, week = iso_week(days)
    half = hour % 12 or 12
    two = abs(year) % 100
    clock = f"{hour:02}:{minute:02}:{second:02}"
    date = f"{_year(year)}-{month:02}-{day:02}"
    return {
        "%%": "%",
        "%a": DAYS[weekday][:3],
        "%A": DAYS[weekday],
        "%b": MONTHS[month - 1][:3],
        "%B": MONTHS[month - 1],
        "%c": f"{date} {clock}",
        "%d": f"{day:02}",
        "%-d": str(day),
        "%f": f"{fraction:06}",
        "%g": f"{fraction // 1000:03}",
        "%G": _year(iso_year),
        "%h": MONTHS[month - 1][:3],
        "%H": f"{hour:02}",
        "%-H": str(hour),
        "%I": f"{half:02}",
        "%-I": str(half),
        "%j": f"{of_year:03}",
        "%-j": str(of_year),
        "%m": f"{month:02}",
        "%-m": str(month),
        "%M": f"{minute:02}",
        "%-M": str(minute),
        "%n": f"{fraction:06}000",
        "%p": "PM" if hour > 11 else "AM",
        "%S": f"{second:02}",
        "%-S": str(second),
        "%T": clock,
        "%u": str(weekday or 7),
        "%U": f"{(of_year + 6 - weekday) // 7:02}",
        "%V": f"{week:02}",
        "%w": str(weekday),
        "%W": f"{(of_year + 6 - (weekday - 1) % 7) // 7:02}",
        "%x": date,
        "%X": clock,
        "%y": f"{two:02}",
        "%-y": str(two),
        "%Y": _year(year),
        "%z": "+00",
        "%Z": "",
    }


def _year(year: int) -> str:
    return f"{year:04}" if year >= 0 else str(year)


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": "1"}) as connection:
        yield connection


def written(connection: duckdb.DuckDBPyConnection, format_: str) -> list[str]:
    """What strftime makes of TIMES, as rows of a column, after the heap held marks."""
    assert format_problem("strftime", [None, format_]) is None, format_
    connection.execute("SELECT max(repeat('<MARK>' || i, 2 + i % 9)) FROM range(200) t(i)").fetchall()
    quoted = format_.replace("'", "''")
    sql = f"SELECT strftime(make_timestamp(us), '{quoted}') FROM (SELECT unnest(?::BIGINT[]) AS us)"
    return [text for (text,) in connection.execute(sql, [list(TIMES)]).fetchall()]


@pytest.mark.parametrize("specifier", sorted(SPECIFIERS))
def test_each_specifier_alone_repeated_and_between_text(specifier: str, connection: duckdb.DuckDBPyConnection) -> None:
    expected = [oracle(us)[specifier] for us in TIMES]
    ends = [specifier, f"a long text before the specifier: {specifier}"]
    inside = [specifier * 2, specifier * 4, f"{specifier}|", f"<{specifier}> and a long text after it, é"]
    for format_ in ends if specifier == NANOSECONDS else ends + inside:
        parts = format_.split(specifier)
        for _ in range(5):
            assert written(connection, format_) == [text.join(parts) for text in expected]


def test_specifiers_in_any_order(connection: duckdb.DuckDBPyConnection) -> None:
    choose = random.Random(20)
    known = sorted(SPECIFIERS - {NANOSECONDS})
    tables = [oracle(us) for us in TIMES]
    for _ in range(500):
        parts = [choose.choice([*known, " ", "T", "-", "é", "😀"]) for _ in range(choose.randint(2, 9))]
        parts = ["%Y", *parts, *([NANOSECONDS] if choose.random() < 0.3 else [])]
        assert written(connection, "".join(parts)) == [
            "".join(table.get(part, part) for part in parts) for table in tables
        ]


@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP", "TIMESTAMP_NS", "TIMESTAMPTZ"])
def test_infinity_and_other_types(kind: str, connection: duckdb.DuckDBPyConnection) -> None:
    table = oracle(1_704_164_645_678_901 if kind != "DATE" else 1_704_153_600_000_000)
    for specifier in sorted(SPECIFIERS - {NANOSECONDS, "%Z"}):
        sql = f"SELECT strftime({{}}::{kind}, '{specifier}{specifier}|{specifier}')"
        first, second = table[specifier] * 2, table[specifier]
        said = connection.execute(sql.format("'2024-01-02 03:04:05.678901+00'")).fetchall()
        assert said == [(f"{first}|{second}",)]
        assert connection.execute(sql.format("'infinity'")).fetchall() == [("infinity",)]


def test_duckdb_knows_no_other_specifier(connection: duckdb.DuckDBPyConnection) -> None:
    known = set()
    for flag in ("", "-", "_", "0", "^", "#", "E", "O", "+"):
        for sign in map(chr, range(33, 127)):
            try:
                connection.execute("SELECT strftime(TIMESTAMP '2024-01-02', ?)", [f"%{flag}{sign}"]).fetchall()
            except duckdb.InvalidInputException:
                continue
            known.add(f"%{flag}{sign}")
    assert known == SPECIFIERS


def test_nanoseconds_inside_a_format_are_what_duckdb_gets_wrong(connection: duckdb.DuckDBPyConnection) -> None:
    """When this fails DuckDB is mended, and %n may stand anywhere."""
    wrong = connection.execute("SELECT strftime(TIMESTAMP '2024-01-02', '%n%n')").fetchall()
    assert wrong != [("0" * 18,)]
    assert format_problem("strftime", [None, "%n%n"]) == "%n must end the format: write strftime(t, '%S.%n') || 'Z'"
    assert format_problem("strptime", [None, "%n %Y"]) is None
