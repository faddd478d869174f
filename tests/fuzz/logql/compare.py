"""Two answers to one query: ours and that of the slow evaluator, and ours by lakes of several forms."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from fuzz.logql.grammar import LogqlQuery
from fuzz.logql.lines import Row
from fuzz.logql.slow_evaluator import SlowEntry, SlowMetrics, slow_lines
from fuzz.logql.slow_labels import DETAILS
from fuzz.logql.slow_series import SlowError, Vector
from lakerunner.logql.log_plan import LogqlQuestion, compile_logql
from lakerunner.logql.text.parse import parse_logql
from lakerunner.logql.text.syntax import Pipeline
from lakerunner.model.errors import UserError
from lakerunner.query.engine import Engine
from lakerunner.query.options import Options
from lakerunner.query.series_answer import SeriesAnswer
from lakerunner.series.values import Scalar
from query.sample_lake import OWN

Series = dict[frozenset[tuple[str, str]], dict[int, float]]
_RELABELS = re.compile("keep|drop|label_format")
SCALAR = (("scalar", ""),)
_MATCHING = ("duplicate series", "many-to-one", "unique matches", "many-to-many")


@dataclass(frozen=True)
class Ours:
    """What an engine answers: one of lines (time, line, kinds), series by labels, a scalar by step, or an error."""

    lines: tuple[tuple[int, str, tuple[str, str, str]], ...] | None = None
    series: tuple[tuple[tuple[tuple[str, str], ...], tuple[tuple[int, str], ...]], ...] | None = None
    error: str = ""

    @property
    def kind(self) -> str:
        """Return the kind of an error. Which of several series an error names is left open."""
        if any(word in self.error for word in _MATCHING):
            return "matching"
        if "same labelset" in self.error:
            return "same labels"
        return "pipeline" if self.error.startswith("pipeline error") else self.error

    def is_same(self, other: Ours) -> bool:
        """Return whether both have the same bits."""
        return (self.lines, self.series, self.kind) == (other.lines, other.series, other.kind)


def ask(engine: Engine, query: LogqlQuery) -> Ours:
    """Return our answer; values of samples are their exact texts, so that equal answers have equal bits."""
    question = LogqlQuestion(
        query.text, query.start, query.end, query.step, query.limit, "forward" if query.forward else "backward"
    )
    try:
        answer: Any = engine.answer(OWN, compile_logql(question, query.end), Options(query.end, text=query.text))
        if isinstance(answer, SeriesAnswer):
            (group,) = answer
            return Ours(series=series_of(group.value, question.steps.times))
        rows = [row for batch in answer for row in batch.to_pylist()]
        return Ours(tuple((row["timestamp"], row["line"], _kinds(row)) for row in rows))
    except UserError as error:
        return Ours(error=error.message)


def _kinds(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return str(row["stream"]), str(row["metadata"]), str(row["parsed"])


def series_of(value: Any, times: Any) -> Any:
    if isinstance(value, Scalar):
        points = tuple(
            (int(t), repr(float(v))) for t, v in zip(times, np.broadcast_to(value.values, len(times)), strict=True)
        )
        return ((SCALAR, points),)
    found = []
    for number, labels in enumerate(value.labels):
        points = tuple(
            (int(times[step]), repr(float(value.values[number, min(step, value.values.shape[1] - 1)])))
            for step in range(len(times))
            if value.present[number, min(step, value.present.shape[1] - 1)]
        )
        if points:
            found.append((tuple(labels), points))
    return tuple(found)


def difference(rows: Sequence[Row], query: LogqlQuery, ours: Ours) -> str | None:
    """Describe what differs from the slow evaluator, None if nothing does. Raise Undefined if it does not know."""
    try:
        parsed = parse_logql(query.text)
    except UserError as error:
        return None if ours.error == error.message else f"ours: {ours.error or 'an answer'}, expected: {error.message}"
    if isinstance(parsed, Pipeline):
        if ours.lines is None:
            return f"ours: {ours.error}"
        return line_difference(query, ours.lines, slow_lines(rows, parsed, query.start, query.end, query.end))
    times = [query.end] if query.step == 0 else list(range(query.start, query.end + 1, query.step))
    try:
        metrics = SlowMetrics(rows, times, query.end)
        expected = {time: metrics.at(parsed, time) for time in times}
    except SlowError as error:
        return None if ours.kind == error.args[0] else f"ours: {ours.error or ours.series}, expected: {error}"
    if ours.series is None:
        return f"ours: {ours.error}, expected {expected}"
    return series_difference(ours.series, expected)


# ---- lines


def line_difference(
    query: LogqlQuery, ours: Sequence[Any], expected: Sequence[SlowEntry], *, ordered: bool = True
) -> str | None:
    """Describe what differs from all lines of the query, oldest first. `ordered`: lines of one stream and time have the
    order of their arrival."""
    found = [(time, line, *(_shown(orjson.loads(one)) for one in kinds)) for time, line, kinds in ours]
    wanted = [(one.time, one.line, *map(_shown, one.kinds)) for one in expected]
    if not query.forward:
        wanted.reverse()
    times = [one[0] for one in found]
    if times != [one[0] for one in wanted[: query.limit]]:
        return f"{len(found)} lines at {times[:5]}..., expected {len(wanted)} at {[one[0] for one in wanted[:5]]}..."
    last = times[-1] if len(wanted) > len(found) else None  # of equal time as the last line any may have been cut off
    sure, any_of = Counter(one for one in wanted if one[0] != last), Counter(one for one in wanted if one[0] == last)
    got, tied = Counter(one for one in found if one[0] != last), Counter(one for one in found if one[0] == last)
    for some, others in ((got - sure, sure - got), (tied - any_of, any_of - tied)):
        if some:
            return f"got {list(some)[:2]}\n  expected {list(others)[:2]}"
    # Where stages change the labels of streams, lines do not tell from which one they came.
    has_order = ordered and last is None and not _RELABELS.search(query.text)
    return _order_difference(found, wanted) if has_order else None


def _order_difference(found: Sequence[Any], wanted: Sequence[Any]) -> str | None:
    """Lines of one stream and time keep the order of their arrival."""
    for one, other in zip(_by_stream(found), _by_stream(wanted), strict=True):
        if one != other:
            return f"the order of {one[:3]} is {other[:3]}"
    return None


def _by_stream(lines: Sequence[Any]) -> list[Any]:
    return sorted(lines, key=lambda one: (one[0], sorted(one[2])))  # stable: equal ones keep their order


def _shown(labels: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset((name, value) for name, value in labels.items() if name != DETAILS)


# ---- series


def series_difference(ours: Any, expected: Mapping[int, Vector | float]) -> str | None:
    got = {frozenset(labels) if labels != SCALAR else "scalar": dict(points) for labels, points in ours}
    wanted: dict[Any, dict[int, float]] = {}
    for time, vector in expected.items():
        for labels, value in vector.items() if isinstance(vector, dict) else (("scalar", vector),):
            wanted.setdefault(labels, {})[time] = value
    if got.keys() != wanted.keys():
        more, missing = got.keys() - wanted.keys(), wanted.keys() - got.keys()
        return f"series too many {list(map(sorted, more))[:3]}, missing {list(map(sorted, missing))[:3]}"
    for labels, points in wanted.items():
        if got[labels].keys() != points.keys():
            return f"{sorted(labels)} at {sorted(got[labels])[:5]}, expected {sorted(points)[:5]}"
        for time, value in points.items():
            if not _almost(float(got[labels][time]), value):
                return f"{sorted(labels)} at {time}: {got[labels][time]}, expected {value}"
    return None


def _almost(one: float, other: float) -> bool:
    return (
        one == other or (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
    )
