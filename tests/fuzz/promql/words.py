"""The words of random queries."""

from __future__ import annotations

OURS = ("sketch_over_time",)  # functions that Prometheus does not have, so that they cannot be compared
COUNTERS = ("requests_total", "started_total", "latency_bucket", "latency_count", "size", "custom", "mixed")
HISTOGRAMS = ("size", "size", "custom", "gauge_size", "mixed")
GAUGES = ("load", "other", "temperature", "job:load:mean", "dotted.name", "target_info", "build_info")
METRICS = (*COUNTERS, *GAUGES, "load", "requests_total", "gauge_size", "nothing")
NAME_MATCHERS = (
    '__name__=~"load|other"',
    '__name__=~"re.*|size"',
    '__name__!~".*(total|info|bucket)", job!=""',
    '__name__="load"',
    '"load"',
    '__name__=~".+_info"',
    '__name__=~"latency_.+"',
)
CLASSIC = (
    "latency_bucket",
    "sum by (le) (latency_bucket)",
    "sum by (job, le) (increase(latency_bucket[10m]))",
    '{__name__=~"latency_bucket|size"}',
    'latency_bucket{job="a"} offset 1m',
    "latency_bucket - 1",
)
KEEPING_HISTOGRAMS = ("rate", "increase", "delta", "sum_over_time", "avg_over_time", "last_over_time")
VALUES = ("a", "b", "x:1", "y:2", "200", "+Inf", "1", "p", "é", "")
VALUES_OF = {"job": ("a", "b"), "instance": ("x:1", "y:2", "z:3"), "code": ("200", "404", ""), "le": ("1", "+Inf", "")}
PATTERNS = ("a|b", "a", ".*", ".+", "", "[xy]:.", "(?i)A", "[^a]", "2..|404", "x.1|z:3", "b?", "é")
LABELS = ("job", "instance", "code", "le", "room", "__name__", "label.dotted", "nothing")
NEW_LABELS = ("job", "new", "instance", "__name__", "code", "é")
REPLACED = (
    ("(.*)", "$1"),
    ("(.+):(.+)", "$2-$1"),
    ("a", "c"),
    ("(?P<first>.).*", "${first}_$0"),
    ("", "was-empty"),
    (".*", ""),
    ("[0-9]+", "$$1"),
    ("x:1|y:2", "same"),
    ("(", "wrong"),
)
INFO_SELECTORS = (
    "",
    "",
    '{version=~".+"}',
    '{version="1.0"}',
    '{region!="eu"}',
    '{__name__="build_info"}',
    '{__name__=~".+_info"}',
    '{__name__=~".+_info", build=~".+"}',
    '{build=~".*"}',
    '{nothing="x"}',
)
GROUPING = ("job", "instance", "code", "le", "room", "nothing", "__name__", '"label.dotted"')
INCLUDED = ("code", "room", "build", "version", "nothing", "job", "__name__")
AGGREGATIONS = (
    *("sum", "avg", "count", "min", "max", "group", "stddev", "stdvar", "quantile"),
    *("topk", "bottomk", "limitk", "limit_ratio", "count_values", "sum", "avg"),
)
COUNTED = ("topk", "bottomk", "limitk")
COUNTS = ("0", "1", "1", "2", "3", "3", "5", "-1", "2.9", "100", "1e19", "NaN", "Inf")
COMPARISONS = ("==", "!=", "<", ">", "<=", ">=")
OPERATORS = ("+", "-", "*", "/", "%", "^", "atan2", *COMPARISONS, "+", "-", "*", "/")
OF_COUNTERS = ("rate", "increase", "irate", "resets", "delta", "changes")
CLOCK = ("year", "month", "day_of_month", "day_of_week", "day_of_year", "days_in_month", "hour", "minute")
SHARES = ("0", "0.1", "0.25", "0.5", "0.5", "0.9", "0.99", "1", "-0.5", "1.5", "NaN", "-1", "0.3333333")
NUMBERS = (
    *("0", "1", "-1", "2", "3", "0.5", "-0.1", "10", "1e3", "1_000", "0x1f", ".5", "1e100", "-1e-7", "1e308"),
    *("5e-324", "Inf", "-Inf", "NaN", "5m", "1h30m", "0.1", "1709290000", "-0", "3.141592653589793", "017"),
)
RANGES = ("1m", "2m", "5m", "5m", "10m", "10m", "90s", "7m3s", "30m", "1h", "300", "150.5", "1ms", "61s")
RANGE_TERMS = (
    *("5m * 2", "step() + 1m", "max_of(step(), 3m)", "range()", "(2m + 30s)", "1h / 6", "2 ^ 8", "1000 % 700"),
    *("min_of(range(), 10m)", "range() + 5m", "-(-4m)", "step() * 5", "5m - 10m", "max_of(1m, 2m) * 3"),
)
OFFSETS = ("1m", "5m", "-5m", "30s", "10m", "-1ms", "61.5", "-90", "1h", "0")
OFFSET_TERMS = ("step()", "-step()", "(1m * 3)", "-(2m + 1)", "max_of(step(), 1m)", "range()", "(range() / 2)")
SUBQUERY_STEPS = ("", "", "1m", "30s", "61s", "2m", "7m", "step()", "max_of(step(), 30s)")
