"""The labels of a Prometheus series: a tuple of (name, value), sorted by name, no name twice, no value empty.

The metric's name is the label `__name__`. A label with an empty value is one that is not there: it never stands here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

Labels = tuple[tuple[str, str], ...]
NAME = "__name__"
TYPE, UNIT = "__type__", "__unit__"  # with the name they say what a metric is, and go where the name goes
NO_LABELS: Labels = ()
_PLAIN_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_PLAIN_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def labels_of(given: Mapping[str, str] | Iterable[tuple[str, str]]) -> Labels:
    """Sorted, without empty values; of a name that comes twice the last counts."""
    return tuple(sorted((name, value) for name, value in dict(given).items() if value))


def value_of(labels: Labels, name: str) -> str:
    """ "" where there is no such label."""
    for own, value in labels:  # a generator would take twice the time, and this is asked of every series
        if own == name:
            return value
    return ""


def without_name(labels: Labels) -> Labels:
    """What is left when an operation has made another metric of it."""
    # Nearly always there is none of the three, or the name comes first and the rest sorts behind the other two: then a
    # slice takes a tenth of the time.
    if labels and labels[0][0] > UNIT:
        return labels
    if labels and labels[0][0] == NAME and (len(labels) == 1 or labels[1][0] > UNIT):
        return labels[1:]
    return tuple(pair for pair in labels if pair[0] not in (NAME, TYPE, UNIT))


def is_plain_name(name: str) -> bool:
    """Whether a metric may be called so without quotes."""
    return _PLAIN_NAME.fullmatch(name) is not None


def is_plain_label(name: str) -> bool:
    return _PLAIN_LABEL.fullmatch(name) is not None


def labels_text(labels: Labels) -> str:
    """As PromQL writes it: name{a="b"}, or {"a name", "a.label"="b"} where quotes are needed."""
    name = value_of(labels, NAME)
    inside = [_quoted(name)] if name and not is_plain_name(name) else []
    inside += [f"{n if is_plain_label(n) else _quoted(n)}={_quoted(v)}" for n, v in labels if n != NAME]
    before = name if is_plain_name(name) else ""
    return f"{before}{{{', '.join(inside)}}}" if inside or not before else before


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
