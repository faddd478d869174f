"""The functions that a query may call, and the time formats that some of them may be given.

A name that is not listed here is refused, whatever DuckDB would do with it. Every listed function is pure: it reads its
arguments and nothing else (no files, settings, catalog, clock or random numbers), and does not make a long value out of
a short one; where it could, lakeql/bounds.py bounds its arguments. docs/formats/lakeql.md shows this table; a test
compares both and checks with DuckDB that each name exists.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_AGGREGATE = """
any_value approx_count_distinct approx_quantile approx_top_k arbitrary arg_max arg_max_null arg_min arg_min_null
argmax argmin array_agg avg bit_and bit_or bit_xor bool_and bool_or corr count count_if countif covar_pop
covar_samp entropy favg first fsum group_concat histogram json_group_array json_group_object kahan_sum kurtosis
kurtosis_pop last list listagg mad max max_by mean median min min_by mode percentile_cont percentile_disc product
quantile quantile_cont quantile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx
regr_sxy regr_syy sem skewness stddev stddev_pop stddev_samp string_agg sum sumkahan var_pop var_samp variance
"""
_WINDOW = """
cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank row_number
"""
_TIME = """
ago century date_add date_diff date_part date_sub date_trunc datediff datepart datesub datetrunc day dayname
dayofmonth dayofweek dayofyear days_in_month decade epoch epoch_ms epoch_ns epoch_us era
get_current_timestamp hour isodow isoyear julian last_day make_date make_time make_timestamp make_timestamp_ms
make_timestamp_ns microsecond millennium millisecond minute month monthname nanosecond now quarter second strftime
strptime time_bucket timezone to_centuries to_days to_decades to_hours to_microseconds to_millennia to_milliseconds
to_minutes to_months to_quarters to_seconds to_timestamp to_weeks to_years today transaction_timestamp
try_strptime week weekday weekofyear year yearweek
"""
_TEXT = """
ascii base64 bit_length char_length character_length chr concat concat_ws contains decode encode ends_with format
format_bytes from_base64 from_hex hash hex instr lcase left length lower lpad ltrim md5 nfc_normalize octet_length ord
position prefix printf regexp_escape regexp_extract regexp_extract_all regexp_full_match regexp_matches
regexp_replace regexp_split_to_array replace reverse right rpad rtrim sha1 sha256 split split_part starts_with
str_split str_split_regex string_split string_split_regex string_to_array strip_accents strlen strpos substr
substring suffix to_base64 to_hex translate trim ucase unhex unicode upper url_decode url_encode
"""
_NUMBER = """
abs acos acosh add asin asinh atan atan2 atanh bit_count cbrt ceil ceiling cos cosh cot degrees divide even exp
factorial fdiv floor fmod gamma gcd greatest greatest_common_divisor isfinite isinf isnan lcm least
least_common_multiple lgamma ln log log10 log2 mod multiply nextafter pi pow power radians round round_even sign
signbit sin sinh sqrt subtract tan tanh trunc xor
"""
_LIST = """
array_append array_cat array_concat array_contains array_distinct array_extract array_filter array_has
array_has_all array_has_any array_indexof array_intersect array_length array_position array_prepend array_reduce
array_reverse array_reverse_sort array_slice array_sort array_to_string array_transform array_unique array_zip
cardinality element_at flatten generate_series len list_any_value list_append list_apply list_avg list_cat
list_concat list_contains list_count list_distinct list_element list_extract list_filter list_first list_has
list_has_all list_has_any list_indexof list_intersect list_last list_max list_median list_min list_mode list_position
list_prepend list_product list_reduce list_reverse list_reverse_sort list_select list_slice list_sort list_sum
list_transform list_unique list_value list_where list_zip range unnest
"""
_MAP_AND_STRUCT = """
map map_concat map_contains map_entries map_extract map_extract_value map_from_entries map_keys map_values row
struct_concat struct_extract struct_insert struct_keys struct_pack
"""
_JSON = """
array_to_json from_json json json_array json_array_length json_contains json_exists json_extract json_extract_path
json_extract_path_text json_extract_string json_keys json_merge_patch json_object
json_pretty json_quote json_structure json_transform json_type json_valid json_value row_to_json to_json
"""
_OTHER = "coalesce grouping grouping_id if ifnull nullif try typeof"

FUNCTIONS_BY_KIND: dict[str, tuple[str, ...]] = {
    "aggregate": tuple(_AGGREGATE.split()),
    "window": tuple(_WINDOW.split()),
    "time": tuple(_TIME.split()),
    "text": tuple(_TEXT.split()),
    "number": tuple(_NUMBER.split()),
    "list": tuple(_LIST.split()),
    "map and struct": tuple(_MAP_AND_STRUCT.split()),
    "json": tuple(_JSON.split()),
    "other": tuple(_OTHER.split()),
}
FUNCTIONS = frozenset(name for names in FUNCTIONS_BY_KIND.values() for name in names)

# The only functions that may stand in FROM.
TABLE_FUNCTIONS = frozenset({"unnest", "range", "generate_series"})

_MICROSECOND = """
add approx_quantile avg century date_add date_diff date_part date_sub date_trunc datediff datepart datesub datetrunc day
dayname dayofmonth dayofweek dayofyear days_in_month decade epoch epoch_ms epoch_us era hour isfinite isinf isodow
isoyear julian last_day mad mean microsecond millennium millisecond minute month monthname quantile_cont quarter second
subtract time_bucket week weekday weekofyear year yearweek
"""
# DuckDB rounds a TIMESTAMP_NS to microseconds for these, so that the last half microsecond of a day would count as the
# next day. They get it truncated instead, by a macro (query/sandbox/instance.py) that our own rewriting calls.
MICROSECOND_FUNCTIONS = frozenset(_MICROSECOND.split())
MICROSECONDS = "microseconds"
# The start of a time's bucket of a given width in ns: also a macro, for keys of groups (lakeql/grouped.py).
BUCKET_START = "bucket_start"


# ---- formats of strftime, strptime and try_strptime
#
# DuckDB 2.0 reserves nine bytes for `%n` (nanoseconds) and fills six of them, except where `%n` ends the format: the
# rest of the text is memory of the process, which may hold rows of other organizations. So a format must be a literal
# with only those specifiers that tests/query/test_time_format_bytes.py compares byte by byte with an independent
# implementation.

MAX_FORMAT = 100  # characters: `%c` makes 25 out of 2
# All specifiers of DuckDB 2.0. What a later version adds is refused until the test's oracle has it.
_ALL = """
%% %a %A %b %B %c %d %-d %f %g %G %h %H %-H %I %-I %j %-j %m %-m %M %-M %n %p %S %-S %T %u %U %V %w %W %x %X %y %-y %Y
%z %Z
"""
SPECIFIERS = frozenset(_ALL.split())
NANOSECONDS = "%n"
_WRITES = "strftime"
TIME_FORMATTED = frozenset({_WRITES, "strptime", "try_strptime"})
_SPECIFIER = re.compile(r"%-?.?", re.DOTALL)


def format_problem(function: str, arguments: Sequence[str | list[str] | None]) -> str | None:
    """Return what is wrong with a call of one of TIME_FORMATTED, or None.

    An argument is the text of a literal, the texts of a list of literals, or None for anything else. strftime takes its
    arguments in either order: the literal with a specifier is the format, because such a text is never a time.
    """
    if len(arguments) != 2:
        return "takes two arguments"
    writes = function == _WRITES
    texts = [text for text in arguments if isinstance(text, str)] if writes else _format_texts(arguments[1])
    if not any("%" in text for text in texts):
        return "the format must be a literal with specifiers as %Y"
    return next(filter(None, (_text_problem(text, writes=writes) for text in texts)), None)


def _format_texts(argument: str | list[str] | None) -> list[str]:
    return [argument] if isinstance(argument, str) else argument or []


def _text_problem(text: str, *, writes: bool) -> str | None:
    if len(text) > MAX_FORMAT:
        return f"the format has {len(text)} characters, more than the {MAX_FORMAT} allowed"
    for found in _SPECIFIER.finditer(text):
        if found[0] not in SPECIFIERS:
            return f"{found[0]} is not a known specifier of a format"
        if writes and found[0] == NANOSECONDS and found.end() < len(text):
            return "%n must end the format: write strftime(t, '%S.%n') || 'Z'"
    return None
