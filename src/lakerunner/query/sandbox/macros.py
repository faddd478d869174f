"""The macros every query connection has: the meaning of stored values, written once in DuckDB's SQL.

`typed_text` turns typed JSON (model/typed_json.py) into the plain text of the value: a string as it is, a number's
digits, true or false, bytes in base64, an array or a map as JSON, nothing for the empty value. Whether a value stood in
a column of its own or in the overflow map, the text is the same.
"""

from __future__ import annotations

from lakerunner.query.sandbox.kernels import INFINITY, MINUS_INFINITY, NOT_A_NUMBER, ODD

_TYPED_TEXT = r"""
CREATE MACRO typed_text(v) AS CASE
    WHEN starts_with(v, '"') THEN json_extract_string(v, '$')
    WHEN v = 'null' THEN NULL
    WHEN NOT starts_with(v, '{"') THEN v
    WHEN regexp_full_match(v, '\{"bytesValue":"[A-Za-z0-9+/=]*"\}') THEN json_extract_string(v, '$.bytesValue')
    WHEN regexp_full_match(v, '\{"doubleValue":"(NaN|-?Infinity)"\}') THEN json_extract_string(v, '$.doubleValue')
    WHEN starts_with(v, '{"kvlistValue":{') AND len(json_keys(v)) = 1
        THEN substring(v, length('{"kvlistValue":') + 1, length(v) - length('{"kvlistValue":') - 1)
    ELSE v
END
"""
_DOUBLE_TEXT = """
CREATE MACRO double_text(d) AS CASE
    WHEN isnan(d) THEN 'NaN'
    WHEN isinf(d) THEN CASE WHEN d > 0 THEN 'Infinity' ELSE '-Infinity' END
    ELSE CAST(d AS VARCHAR)
END
"""
# A key may occur twice in OTLP, not in a DuckDB map: the first one counts. A macro's argument is planned anew wherever
# it stands, and this one is long: the outer lambda names it once.
_FIRST_OF_EACH = """
CREATE MACRO first_of_each(entries) AS list_transform([entries], lambda es: CASE
    WHEN len(list_distinct(list_transform(es, lambda e: e.key))) = len(es) THEN es
    ELSE list_filter(es, lambda e, i: list_position(list_transform(es, lambda x: x.key), e.key) = i)
END)[1]
"""
_ATTRIBUTE_MAP = """
CREATE MACRO attribute_map(columns, overflow) AS map_from_entries(list_sort(first_of_each(list_concat(
    list_filter(columns, lambda e: e.value IS NOT NULL),
    list_transform(map_entries(overflow), lambda e: {'key': e.key, 'value': typed_text(e.value)})
))))
"""
# DuckDB's own cast rounds, and 23:59:59.9999999 becomes the next day; this one cuts, before 1970 too. One division, as
# it is done for every row.
_MICROSECONDS = """
CREATE MACRO microseconds(t) AS make_timestamp(floor_of_thousand(epoch_ns(CAST(t AS TIMESTAMP_NS))))
"""
_FLOOR_OF_THOUSAND = """
CREATE MACRO floor_of_thousand(n) AS CASE WHEN n >= 0 THEN n // 1000 ELSE (n - 999) // 1000 END
"""
# date_trunc or time_bucket of `microseconds`, where buckets of a whole number of microseconds begin at the epoch.
_BUCKET_START = """
CREATE MACRO bucket_start(t, width) AS
    make_timestamp(floor_of_width(epoch_ns(CAST(t AS TIMESTAMP_NS)), width) * (width // 1000))
"""
_FLOOR_OF_WIDTH = """
CREATE MACRO floor_of_width(n, width) AS CASE WHEN n >= 0 THEN n // width ELSE (n + 1) // width - 1 END
"""
# A double as part * 2^(-32 * bin), part a whole number of at most 88 bits: exact, as is the sum of parts of one bin.
# The exponent need only be about right. Multiplied in two steps, as 2^1074 is no double. What is no finite number is
# counted in a bin of its own (query/sandbox/kernels.py).
_SUM_BIN = f"""
CREATE MACRO sum_bin(x) AS CASE
    WHEN x IS NULL THEN NULL
    WHEN NOT isfinite(x) THEN {ODD}
    WHEN x = 0 THEN 0
    ELSE CAST(floor((53 - log2(abs(x))) / 32) AS INTEGER) + 1
END
"""
_SUM_PART = f"""
CREATE MACRO sum_part(x) AS CASE
    WHEN x IS NULL OR x = 0 THEN CAST(0 AS HUGEINT)
    WHEN isnan(x) THEN CAST({NOT_A_NUMBER} AS HUGEINT)
    WHEN isinf(x) THEN CASE WHEN x > 0 THEN CAST({INFINITY} AS HUGEINT) ELSE CAST({MINUS_INFINITY} AS HUGEINT) END
    ELSE CAST(x * pow(2.0::DOUBLE, 16 * sum_bin(x)) * pow(2.0::DOUBLE, 16 * sum_bin(x)) AS HUGEINT)
END
"""

MACROS = (
    _TYPED_TEXT,
    _DOUBLE_TEXT,
    _FIRST_OF_EACH,
    _ATTRIBUTE_MAP,
    _FLOOR_OF_THOUSAND,
    _MICROSECONDS,
    _FLOOR_OF_WIDTH,
    _BUCKET_START,
    _SUM_BIN,
    _SUM_PART,
)
