"""Two answers in Prometheus' JSON: whether they say the same.

Same series, same points, the same text of every number, the same warnings and infos, the same error. Narrowly excused:

- the order of an instant's series, unless the query is a sort: Prometheus leaves it open, as it does that of equal
  values in a sort, and of series that lack a label that others are sorted by;
- columns in texts that are not ASCII, which Prometheus counts in bytes and we in characters;
- annotations past the tenth of a level, of which Prometheus shows any ten;
- how many samples of classic histograms were raised in a range, and when: Prometheus counts those of each step again at
  every later one, and of what is the same at every step only the first;
- buckets of NaN, which `x * NaN` makes of empty ones too: which of these are there is a matter of Prometheus' chunks;
- the last digits of sums over many series in a range query: between two operations Prometheus keeps the series of a
  range in a map, and adds them up in whatever order that gives.

Where our answer comes of parts of the series (`in_parts`), these last digits of an instant too, and which of several
series of a match group an error names.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from fuzz.promql.grammar import Query

_RELATIVE = 1e-12
_SORTED = re.compile(r"sort(_desc)?\(.*\)$")
_BY_LABEL = re.compile(r"sort_by_label(_desc)?\(.*\)$")
_PLACE = re.compile(r" \(\d+:\d+\)|(?<=: )\d+:\d+: ")
_RAISED = re.compile(r"over -?\d+ samples from \S+ to \S+")
_DUPLICATES = re.compile(
    r"(?<=found duplicate series for the match group ).*(?= hand-side of the operation)|(?<=: )\[.*\];"
)
_LAST_NAMES = re.compile(r', "([^"]*)"(?=(?:, "[^"]*")*\)$)')
_SUBQUERY = re.compile(r"\[[^\]]*:")
_OMITTED = re.compile(r"\d+ more (warning|info) annotations omitted")


def difference(query: Query, ours: dict[str, Any], theirs: dict[str, Any], *, in_parts: bool = False) -> str | None:
    """Describe what differs, in a line; None if nothing does."""
    ours, theirs = (_comparable(query, one, in_parts) for one in (ours, theirs))
    if ours["status"] != theirs["status"]:
        return f"ours: {_status(ours)}, theirs: {_status(theirs)}"
    if ours["status"] == "error":
        same = _status(ours) == _status(theirs)
        return None if same else f"ours: {_status(ours)}\n  theirs: {_status(theirs)}"
    for level in ("warnings", "infos"):
        found = _of_notes(ours[level], theirs[level])
        if found:
            return f"{level}: {found}"
    relative = _RELATIVE if in_parts or not query.instant else 0.0
    return _of_data(query, ours["data"], theirs["data"], relative)


def _comparable(query: Query, answer: dict[str, Any], in_parts: bool) -> dict[str, Any]:
    """Return the answer without the excused parts of texts."""
    patterns = [_PLACE] if not query.text.isascii() else []
    patterns += [_RAISED] if not query.instant or _SUBQUERY.search(query.text) else []
    patterns += [_DUPLICATES] if in_parts else []

    def plain(text: str) -> str:
        for pattern in patterns:
            text = pattern.sub("", text)
        return text

    if answer["status"] == "error":
        return {**answer, "error": plain(answer["error"])}
    return {**answer, **{level: [plain(note) for note in answer.get(level) or ()] for level in ("warnings", "infos")}}


def _status(answer: dict[str, Any]) -> str:
    if answer["status"] == "success":
        return f"success {json.dumps(answer['data'])[:300]}"
    message = answer["error"].partition("error parsing regexp")[0]  # the reason has our own words
    return f"{answer['errorType']}: {message}"


def _of_notes(ours: Sequence[str], theirs: Sequence[str]) -> str | None:
    if any(_OMITTED.fullmatch(note) for note in theirs):
        return None if ours[-1:] == theirs[-1:] else f"ours ends {ours[-1:]}, theirs {theirs[-1:]}"
    missing, more = set(theirs) - set(ours), set(ours) - set(theirs)
    return f"missing {sorted(missing)}, too many {sorted(more)}" if missing or more else None


def _of_data(query: Query, ours: dict[str, Any], theirs: dict[str, Any], relative: float) -> str | None:
    if ours["resultType"] != theirs["resultType"]:
        return f"{ours['resultType']} is {theirs['resultType']}"
    if ours["resultType"] in ("scalar", "string"):
        return None if ours == theirs else f"{ours['result']} is {theirs['result']}"
    left, right = ours["result"], theirs["result"]
    names = [[json.dumps(one["metric"], sort_keys=True) for one in side] for side in (left, right)]
    if sorted(names[0]) != sorted(names[1]):
        more, missing = set(names[0]) - set(names[1]), set(names[1]) - set(names[0])
        return f"series missing {sorted(missing)[:5]}, too many {sorted(more)[:5]}, {len(left)} are {len(right)}"
    if names[0] != names[1] and (not query.instant or _order(query, left) != _order(query, right)):
        return f"the order {names[0]} is {names[1]}"
    expected = dict(zip(names[1], right, strict=True))
    for name, series in zip(names[0], left, strict=True):
        if found := _of_series(series, expected[name], relative):
            return f"{name}: {found}"
    return None


def _order(query: Query, result: list[dict[str, Any]]) -> list[str]:
    if _SORTED.match(query.text):
        return [one["value"][1] for one in result]
    if not _BY_LABEL.match(query.text):
        return []
    names = _LAST_NAMES.findall(query.text)
    lacking = any(0 < sum(name in one["metric"] for one in result) < len(result) for name in names)
    return [] if lacking else [json.dumps(one["metric"], sort_keys=True) for one in result]


def _of_series(ours: dict[str, Any], theirs: dict[str, Any], relative: float) -> str | None:
    if ours == theirs:
        return None
    if ours.keys() != theirs.keys():
        return f"{sorted(ours)} are {sorted(theirs)}"
    for kind in ("value", "histogram", "values", "histograms"):
        points = [
            side.get(kind, []) if kind.endswith("s") else [side[kind]] if kind in side else []
            for side in (ours, theirs)
        ]
        if [time for time, _ in points[0]] != [time for time, _ in points[1]]:
            return f"{kind} at {[time for time, _ in points[0]]} are at {[time for time, _ in points[1]]}"
        for (time, one), (_, other) in zip(*points, strict=True):
            if not _almost(one, other, relative):
                return f"at {time}: {one} is {other}"
    return None


def _almost(one: Any, other: Any, relative: float) -> bool:
    if one == other:
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        one, other = _without_nan(one), _without_nan(other)
        return one.keys() == other.keys() and all(_almost(one[key], other[key], relative) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_almost(a, b, relative) for a, b in zip(one, other, strict=True))
    if relative and isinstance(one, str) and isinstance(other, str):
        return math.isclose(float(one), float(other), rel_tol=relative)
    return False


def _without_nan(histogram: dict[str, Any]) -> dict[str, Any]:
    return {**histogram, "buckets": [bucket for bucket in histogram.get("buckets", ()) if bucket[3] != "NaN"]}
