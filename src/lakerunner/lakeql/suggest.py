"""Suggest what an unknown column, function or keyword may mean: by its name in other systems, else by its spelling."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from difflib import get_close_matches

_CLOSE, _CLOSE_KEYWORD = 0.6, 0.75  # DELETE is 0.67 close to SELECT, and not a misspelling
_KEYWORDS = ("SELECT", "WITH", "FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "JOIN", "UNION")
_TIME = ("timestamp",)
_SERVICE = ("service_name",)
_NAME = ("name", "metric_name", "event_name")
# Columns in the order in which they are tried; what is quoted is an attribute.
_SYNONYMS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("level", "lvl", "log_level", "loglevel", "severitytext", "priority", "sev"), ("severity",)),
    **dict.fromkeys(("msg", "text", "line", "log", "log_line", "content", "body"), ("message", "status_message")),
    **dict.fromkeys(("ts", "time", "_time", "datetime", "date", "start_time", "starttime", "start", "t"), _TIME),
    **dict.fromkeys(("end", "end_time", "endtime"), ("end_timestamp",)),
    **dict.fromkeys(("observed", "observed_time", "received"), ("observed_timestamp",)),
    **dict.fromkeys(("service", "svc", "app", "application", "servicename"), _SERVICE),
    **dict.fromkeys(("latency", "elapsed", "took", "duration_ns", "duration_ms", "duration_nano"), ("duration",)),
    **dict.fromkeys(("operation", "operation_name", "span_name", "spanname", "event"), _NAME),
    **dict.fromkeys(("metric", "metricname"), ("metric_name",)),
    **dict.fromkeys(("status", "error", "code"), ("status_code", "severity")),
    **dict.fromkeys(("trace", "traceid"), ("trace_id",)),
    **dict.fromkeys(("span", "spanid"), ("span_id",)),
    **dict.fromkeys(("parent", "parent_id", "parentid", "parentspanid"), ("parent_span_id",)),
    **dict.fromkeys(("tags", "labels", "attrs", "attribute", "fields"), ("attributes",)),
    **dict.fromkeys(("resource", "resources"), ("resource_attrs",)),
    **dict.fromkeys(("org", "organization", "tenant", "tenant_id"), ("organization_id",)),
    "scope": ("scope_name",),
    "name": _NAME,
    "message": ("status_message",),
    "type": ("metric_type",),
    **dict.fromkeys(("host", "hostname", "host_name", "node"), ('"host.name"',)),
    **dict.fromkeys(("pod", "pod_name"), ('"k8s.pod.name"',)),
    **dict.fromkeys(("namespace", "namespace_name"), ('"k8s.namespace.name"',)),
    **dict.fromkeys(("container", "container_name"), ('"k8s.container.name"',)),
}


# What other systems call the functions that we have.
_FUNCTION_SYNONYMS: dict[str, str] = {
    **dict.fromkeys(("to_char", "date_format", "formatdatetime", "format_timestamp"), "strftime"),
    **dict.fromkeys(("to_date", "parse_timestamp", "parsedatetime", "str_to_date"), "strptime"),
    **dict.fromkeys(("uniq", "uniqexact", "approx_distinct", "dcount", "count_distinct"), "approx_count_distinct"),
    **dict.fromkeys(("percentile", "percentile_approx", "quantileexact", "approx_percentile"), "quantile_cont"),
    **dict.fromkeys(("match", "regexp_like", "rlike"), "regexp_matches"),
    **dict.fromkeys(("tostartofminute", "tostartofhour", "tostartofday", "date_histogram"), "date_trunc"),
    **dict.fromkeys(("tostartofinterval", "bin", "date_bin", "time_floor"), "time_bucket"),
    **dict.fromkeys(("nvl", "isnull"), "coalesce"),
    **dict.fromkeys(("jsonextractstring", "get_json_object", "json_unquote"), "json_extract_string"),
    **dict.fromkeys(("from_unixtime", "fromunixtimestamp"), "to_timestamp"),
    **dict.fromkeys(("unix_timestamp", "tounixtimestamp"), "epoch"),
    **dict.fromkeys(("toint32", "toint64", "tofloat64", "tostring", "to_number", "safe_cast"), "try_cast"),
    **dict.fromkeys(("grouparray", "collect_list"), "list"),
    **dict.fromkeys(("groupuniqarray", "collect_set"), "list_distinct"),
}


def suggest_function(name: str) -> str | None:
    """Return the function that other systems call by this name, in lower case."""
    return _FUNCTION_SYNONYMS.get(name)


def unknown_column_message(name: str, owners: Sequence[str], columns: Collection[str], attribute: str) -> str:
    """Return the message about a column that `owners`, the tables and aliases at that place, do not have. `attribute`:
    how to write the attribute of this name, "" if it cannot be one."""
    holders = f"{' and '.join(owners)} {'has' if len(owners) == 1 else 'have'}"
    synonyms = _SYNONYMS.get(name, ())
    meant = next((one for one in synonyms if one in columns or (attribute and one.startswith('"'))), None)
    near = meant or closest_name(name, columns)
    sentences = [f"{holders} no column {name}." if owners else f"there is no column {name} here."]
    if near:
        sentences.append(f"Did you mean {near}?")
    if attribute:
        sentences.append(f"For the attribute, write {attribute} in double quotes.")
    return " ".join(sentences) if len(sentences) > 1 else sentences[0].rstrip(".")


def closest_name(name: str, columns: Collection[str], cutoff: float = _CLOSE) -> str | None:
    """Return the name with the closest spelling."""
    near = get_close_matches(name, sorted(columns), n=1, cutoff=cutoff)
    return near[0] if near else None


def suggest_keyword(word: str) -> str | None:
    """Return the keyword whose spelling is close to this word; None if the word is a keyword."""
    return None if word.upper() in _KEYWORDS else closest_name(word.upper(), _KEYWORDS, _CLOSE_KEYWORD)
