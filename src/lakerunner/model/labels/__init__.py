"""The labels of a Prometheus series: a tuple of (name, value), sorted by name, no name twice, no value empty.

The metric's name is the label `__name__`. A label with an empty value means an absent label, so it never stands here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

Labels = tuple[tuple[str, str], ...]
NAME = "__name__"
TYPE, UNIT = "__type__", "__unit__"  # with the name they identify a metric, and are dropped with it
NO_LABELS: Labels = ()
_PLAIN_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_PLAIN_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def labels_of(given: Mapping[str, str] | Iterable[tuple[str, str]]) -> Labels:
    """Return labels sorted and without empty values; if a name occurs twice, the last one counts."""
    return tuple(sorted((name, value) for name, value in dict(given).items() if value))


def value_of(labels: Labels, name: str) -> str:
    """Return the value of a label, "" if it is absent."""
    for own, value in labels:  # a generator would take twice the time, and this runs for every series
        if own == name:
            return value
    return ""


def without_name(labels: Labels) -> Labels:
    """Return the labels that are left once an operation has made another metric."""
    # Nearly always none of the three is present, or the name comes first and all others sort after the other two:
    # then a slice takes a tenth of the time.
    if labels and labels[0][0] > UNIT:
        return labels
    if labels and labels[0][0] == NAME and (len(labels) == 1 or labels[1][0] > UNIT):
        return labels[1:]
    return tuple(pair for pair in labels if pair[0] not in (NAME, TYPE, UNIT))


def is_plain_name(name: str) -> bool:
    """Whether a metric may have this name without quotes."""
    return _PLAIN_NAME.fullmatch(name) is not None


def is_plain_label(name: str) -> bool:
    return _PLAIN_LABEL.fullmatch(name) is not None


def labels_text(labels: Labels) -> str:
    """Return the labels as PromQL writes them: name{a="b"}, or {"a name", "a.label"="b"} where quotes are needed."""
    name = value_of(labels, NAME)
    inside = [_quoted(name)] if name and not is_plain_name(name) else []
    inside += [f"{n if is_plain_label(n) else _quoted(n)}={_quoted(v)}" for n, v in labels if n != NAME]
    before = name if is_plain_name(name) else ""
    return f"{before}{{{', '.join(inside)}}}" if inside or not before else before


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
