"""Prometheus' names for what OTLP sends: names of metrics and labels, job and instance.

The rules are those of Prometheus 3's OTLP receiver (its otlptranslator 1.0), in two of its translation strategies at
once: a name in UTF-8 form (NoUTF8EscapingWithSuffixes) and in escaped form (UnderscoreEscapingWithSuffixes), both with
suffixes for unit and kind. What Prometheus itself sent keeps its names, and is only escaped. docs/formats/prometheus.md
shows all of it with examples.
"""

from __future__ import annotations

import re

_UNITS = {
    "d": "days",
    "h": "hours",
    "min": "minutes",
    "s": "seconds",
    "ms": "milliseconds",
    "us": "microseconds",
    "ns": "nanoseconds",
    "By": "bytes",
    "KiBy": "kibibytes",
    "MiBy": "mebibytes",
    "GiBy": "gibibytes",
    "TiBy": "tibibytes",
    "KBy": "kilobytes",
    "MBy": "megabytes",
    "GBy": "gigabytes",
    "TBy": "terabytes",
    "m": "meters",
    "V": "volts",
    "A": "amperes",
    "J": "joules",
    "W": "watts",
    "g": "grams",
    "Cel": "celsius",
    "Hz": "hertz",
    "1": "",
    "%": "percent",
}
_PER_UNITS = {"s": "second", "m": "minute", "h": "hour", "d": "day", "w": "week", "mo": "month", "y": "year"}
_WORD = re.compile(r"[a-zA-Z0-9:]+")
_NOT_OF_WORD = re.compile(r"[^a-zA-Z0-9:]+")
_NOT_OF_LABEL = re.compile(r"[^a-zA-Z0-9_]")
_NOT_OF_NAME = re.compile(r"^[0-9]|[^a-zA-Z0-9_:]")
_ONLY_UNDERSCORES = re.compile("_*")
_DIGITS = tuple("0123456789")

# The metric_type of a metadata entry of remote-write 1.0, which is a row but no point of a series.
METADATA_ENTRY = "metadata"
SERIES_TABLE = "series.parquet"  # the side file of a metrics segment that lists its series
JOB, INSTANCE = "job", "instance"
SERVICE_NAME, SERVICE_NAMESPACE, SERVICE_INSTANCE = "service.name", "service.namespace", "service.instance.id"


def metric_name(name: str, unit: str, metric_type: str, *, monotonic: bool) -> str:
    """Return the name in UTF-8 form: as it is, with the suffixes that it lacks."""
    main, per = _unit_words(unit)
    endings = _endings(unit, metric_type, monotonic=monotonic)
    for ending in (*reversed(endings), per):
        name = _without(name, ending)
    if main and not name.endswith(main):
        name = f"{name}_{main}"
    return "_".join([name, *filter(None, [per, *endings])])


def escaped_metric_name(name: str, unit: str, metric_type: str, *, monotonic: bool) -> str | None:
    """Return the name in escaped form: words of ASCII letters, digits and colons, joined by underscores. Return None if
    no word is left; Prometheus refuses such a metric."""
    words = _WORD.findall(name)
    main, per = map(_escaped_unit, _unit_words(unit))
    per = "" if per == "per_" else per.removesuffix("_")
    if main in words:
        main = ""
    if per in words:
        per = ""
    words += filter(None, [main.removesuffix("_") if per else main, per])
    for ending in _endings(unit, metric_type, monotonic=monotonic):
        words = [*(word for word in words if word != ending), ending]
    escaped = "_".join(words)
    if _ONLY_UNDERSCORES.fullmatch(escaped):
        return None
    return f"_{escaped}" if escaped.startswith(_DIGITS) else escaped


def escaped_label_name(name: str) -> str:
    """Return the name in escaped form: every character that is not an ASCII letter, digit or underscore becomes an
    underscore; a name that then begins with a digit, or with a single underscore, gets the prefix `key`. In UTF-8 form
    a label's name is unchanged."""
    escaped = _NOT_OF_LABEL.sub("_", name)
    if escaped.startswith(_DIGITS):
        return f"key_{escaped}"
    return f"key{escaped}" if escaped.startswith("_") and not escaped.startswith("__") else escaped


def escaped_own_name(name: str) -> str:
    """Return the escaped form of a metric or label that Prometheus itself named: every character that is not an ASCII
    letter, digit, underscore or colon becomes an underscore, and so does a digit at the start."""
    return _NOT_OF_NAME.sub("_", name)


def unit_name(unit: str) -> str:
    """Return the unit in words, as metadata have it."""
    words = filter(None, map(_escaped_unit, _unit_words(unit)))
    return "_".join(words).removeprefix("_").removesuffix("_")


def _endings(unit: str, metric_type: str, *, monotonic: bool) -> list[str]:
    """Return the suffixes after the unit. OTLP gives the unit 1 also to what has none: only for gauges it means a
    ratio."""
    if metric_type == "sum" and monotonic:
        return ["total"]
    return ["ratio"] if metric_type == "gauge" and unit == "1" else []


def _unit_words(unit: str) -> tuple[str, str]:
    """Return (what is measured, per what) in words, "" for none. Annotations in braces are not part of the unit."""
    main, _, per = unit.partition("/")
    main, per = main.strip(), per.strip()
    main = "" if _annotated(main) else _UNITS.get(main, main)
    per = "" if _annotated(per) else _PER_UNITS.get(per, per)
    return main, f"per_{per}" if per else ""


def _annotated(unit: str) -> bool:
    return "{" in unit or "}" in unit


def _escaped_unit(unit: str) -> str:
    return _NOT_OF_WORD.sub("_", unit).removeprefix("_")


def _without(name: str, ending: str) -> str:
    """Return the name without this ending and the character before it, if anything is left then."""
    if ending and name.endswith(ending) and len(name) > len(ending) + 1:
        return name[: -len(ending) - 1]
    return name
