"""Functions that Spark lacks, because Java computes them in other ways than DuckDB, over whole Arrow columns.

Case is folded letter by letter, as Unicode's simple mapping has it (Arrow and DuckDB share utf8proc for that), patterns
are RE2's (they share RE2 too), numbers are rounded and read from text as DuckDB does it. lakeql/spark/ calls them by
these names.
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import arrow_udf

from lakerunner.model.regex import search_column

_NUMBER = re.compile(
    r"[ \t\n\v\f\r]*([+-]?)((?:\d+(?:_\d+)*)?)(\.?)((?:\d+(?:_\d+)*)?)(?:[eE]([+-]?\d+))?[ \t\n\v\f\r]*"
)
_PREFIXED = re.compile(r"[ \t\n\v\f\r]*0(?:[xX]([0-9a-fA-F]+)|[bB]([01]+))[ \t\n\v\f\r]*")
_NAMED = {"inf": np.inf, "infinity": np.inf, "nan": np.nan}
_MOST = 1 << 63


def lower(texts: pa.Array) -> pa.Array:
    return pc.utf8_lower(texts)


def upper(texts: pa.Array) -> pa.Array:
    return pc.utf8_upper(texts)


def matches(texts: pa.Array, patterns: pa.Array, options: pa.Array) -> pa.Array:
    """Return where a pattern is found. Patterns and options are the same in every row."""
    if not len(texts):
        return pa.array([], pa.bool_())
    return search_column(texts, patterns[0].as_py(), ignore_case="i" in options[0].as_py())


def rounded(numbers: pa.Array, digits: pa.Array) -> pa.Array:
    """Round half away from zero at a decimal place. A number that overflows when it is scaled stays unchanged."""
    if not len(numbers):
        return pa.array([], pa.float64())
    with np.errstate(all="ignore"):
        values = numbers.fill_null(0.0).to_numpy(zero_copy_only=False)
        scale = np.float64(10.0) ** digits[0].as_py()
        scaled = values * scale
        whole = np.trunc(scaled)
        whole = whole + np.where(np.abs(scaled - whole) >= 0.5, np.copysign(1.0, scaled), 0.0)
        result = whole / scale
    result = np.where(np.isfinite(result), result, values)
    return pa.array(result, pa.float64(), mask=np.asarray(numbers.is_null()))


def whole(texts: pa.Array) -> pa.Array:
    """Return the BIGINT that DuckDB reads in a text, rounded; NULL if it is not a number."""
    return _each(texts, whole_number, pa.int64())


def double(texts: pa.Array) -> pa.Array:
    return _each(texts, double_number, pa.float64())


def whole_number(text: str) -> int | None:
    if prefixed := _PREFIXED.fullmatch(text):
        number = int(prefixed[1], 16) if prefixed[1] else int(prefixed[2], 2)
        return number if number < _MOST else None
    found = _NUMBER.fullmatch(text)
    if not found or not (found[2] or found[4]):
        return None
    sign, units, _, fraction, exponent = (part or "" for part in found.groups())
    if len(exponent) > 4:
        return None
    exact = Decimal(f"{sign}{units or 0}.{fraction or 0}".replace("_", "")).scaleb(int(exponent or 0))
    if abs(exact) > 2 * _MOST:
        return None
    number = int(exact.to_integral_value(ROUND_HALF_UP))
    return number if -_MOST <= number < _MOST else None


def double_number(text: str) -> float | None:
    stripped = text.strip(" \t\n\v\f\r")
    named = _NAMED.get(stripped.lstrip("+-").lower())
    if named is not None and len(stripped) - len(stripped.lstrip("+-")) <= 1:
        return -float(named) if stripped[0] == "-" else float(named)
    found = _NUMBER.fullmatch(text)
    if not found or not (found[2] or found[4]):
        return None
    return float(stripped.replace("_", ""))


def _each(texts: pa.Array, read: Any, kind: pa.DataType) -> pa.Array:
    coded = texts.dictionary_encode()
    values = pa.array([None if text is None else read(text) for text in coded.dictionary.to_pylist()], kind)
    return values.take(coded.indices)


_FUNCTIONS = {
    "lakerunner_lower": (lower, "string"),
    "lakerunner_upper": (upper, "string"),
    "lakerunner_matches": (matches, "boolean"),
    "lakerunner_round": (rounded, "double"),
    "lakerunner_whole": (whole, "bigint"),
    "lakerunner_double": (double, "double"),
}


def register_functions(session: SparkSession) -> None:
    for name, (function, kind) in _FUNCTIONS.items():
        session.udf.register(name, arrow_udf(function, kind))  # type: ignore[call-overload]
