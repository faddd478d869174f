"""The sample that a line gives to a range aggregation: its value, and the labels of its series.

Comes in: a range aggregation, and the grouping of a sum around it. Goes out: a `SampleExtractor`, compiled once. What
always holds: parsers extract only the labels that the query can see. A line with an error keeps all of its labels, and
its series makes the query fail, unless the query names `__error__`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import orjson

from lakerunner.logql.stages.hints import LabelNeeds, ParserHints, hints_of
from lakerunner.logql.stages.label_filter import names_of_test
from lakerunner.logql.stages.line_labels import ERROR, PRESERVE_ERROR, LineLabels
from lakerunner.logql.stages.pipeline import LinePipeline, compile_stages, names_read
from lakerunner.logql.stages.unwrap import compile_unwrap
from lakerunner.logql.text.syntax import Grouping, RangeAggregation
from lakerunner.model.display import go_quote
from lakerunner.model.errors import UserError
from lakerunner.model.labels import Labels, is_plain_label

# What a sum may be pushed into: the sum of its groups is the same as that of all its series.
_SUMMABLE = frozenset(("bytes_over_time", "bytes_rate", "sum_over_time", "rate", "count_over_time"))
OF_BYTES = frozenset(("bytes_over_time", "bytes_rate"))
_LONE = re.compile("[\ud800-\udfff]")
_SeriesOf = Callable[[LineLabels], dict[str, str]]
_Value = Callable[[str, LineLabels], float | None]


class SampleExtractor:
    """Call it with the time, the line and the labels: it returns the value, None for a line without a sample. Then
    `series` returns the labels of the sample's series."""

    __slots__ = ("_pipeline", "_series_of", "_value")

    def __init__(self, pipeline: LinePipeline, value: _Value, series_of: _SeriesOf) -> None:
        self._pipeline = pipeline
        self._value = value
        self._series_of = series_of

    def __call__(self, timestamp_ns: int, line: str, labels: LineLabels) -> float | None:
        """Run the stages and take the value. The labels are those of the line, changed by the stages."""
        made = self._pipeline.process(timestamp_ns, line, labels)
        return None if made is None else self._value(made, labels)

    def series(self, labels: LineLabels) -> Labels:
        """Return the labels of the series, sorted; empty values stay. Raise UserError if they have an error that the
        query does not name."""
        if not labels.error:
            return tuple(sorted(self._series_of(labels).items()))
        found = tuple(sorted(labels.all().items()))
        if labels.get(PRESERVE_ERROR) != "true":
            raise pipeline_error(found)
        return found


def compile_extractor(
    aggregation: RangeAggregation, pushed: Grouping | None = None, now_ns: int = 0
) -> SampleExtractor:
    """Compile the stages and the unwrap of a range aggregation. `pushed` is the grouping of a sum right around it, the
    empty one for a sum without by and without. Raise UserError for a stage that cannot run."""
    lines = aggregation.lines
    needs = label_needs(aggregation, pushed)
    pipeline = compile_stages(lines.pipeline.stages, hints_of(needs), now_ns)
    return SampleExtractor(pipeline, _value_of(aggregation), _series_function(needs))


def hints_for(aggregation: RangeAggregation, pushed: Grouping | None = None) -> ParserHints:
    """Return what the parsers of a range aggregation extract."""
    return hints_of(label_needs(aggregation, pushed))


def label_needs(aggregation: RangeAggregation, pushed: Grouping | None = None) -> LabelNeeds:
    """Return the labels that the stages of a range aggregation read, and those that its series have."""
    unwrap = aggregation.lines.unwrap
    names = names_read(aggregation.lines.pipeline.stages)
    grouping = aggregation.grouping
    if grouping is None and aggregation.op in _SUMMABLE:
        grouping = pushed
    groups, without = ((), False) if grouping is None else (grouping.labels, grouping.without)
    is_single = grouping is not None and not groups and not without
    has_labels = not is_single and aggregation.op != "absent_over_time"
    if unwrap is None:
        return LabelNeeds(names, groups, without, has_labels)
    names += tuple(name for one in unwrap.filters for name in names_of_test(one.test))
    if without or not groups:  # the label whose value is the sample's is no label of its series
        groups, without = (*groups, unwrap.label), True
    return LabelNeeds(names, groups, without, has_labels, unwrap.label)


def is_whole(aggregation: RangeAggregation) -> bool:
    """Return whether its samples are whole numbers, lines or bytes, that it adds up."""
    return aggregation.lines.unwrap is None and aggregation.op in _SUMMABLE


def _value_of(aggregation: RangeAggregation) -> _Value:
    unwrap = aggregation.lines.unwrap
    if unwrap is not None:
        take = compile_unwrap(unwrap)
        return lambda line, labels: take(labels)  # noqa: ARG005
    if aggregation.op in OF_BYTES:
        return lambda line, labels: float(_size(line))  # noqa: ARG005
    return lambda line, labels: 1.0  # noqa: ARG005


def _size(line: str) -> int:
    return len(line) if line.isascii() else len(line.encode("utf-8", "surrogateescape"))


# ---- the labels of series


def _series_function(needs: LabelNeeds) -> _SeriesOf:
    if not needs.has_labels:
        return lambda labels: {}  # noqa: ARG005
    if not needs.groups:
        return LineLabels.all
    groups = needs.groups
    if needs.without:
        hidden = frozenset(groups)
        return lambda labels: _labels_but(labels, hidden)
    return lambda labels: _labels_of(labels, groups)


def _labels_of(labels: LineLabels, groups: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for name in groups:
        # A label that was dropped and set again is not found, as in Loki.
        if name not in labels.deleted and (value := labels.get(name)) is not None:
            found[name] = value
    return found


def _labels_but(labels: LineLabels, hidden: frozenset[str]) -> dict[str, str]:
    stream, metadata, parsed = labels.added
    gone = labels.deleted
    found = {name: value for name, value in labels.base.items() if name not in hidden and name not in gone}
    for own in (stream, metadata, parsed):
        found.update((name, value) for name, value in own.items() if name not in hidden)
    return found


def series_text(labels: Labels) -> str:
    """Return the labels as JSON, with U+FFFD for each byte that is not UTF-8."""
    try:
        return orjson.dumps(labels).decode()
    except TypeError:
        return orjson.dumps([[_LONE.sub("\ufffd", part) for part in pair] for pair in labels]).decode()


def pipeline_error(labels: Labels) -> UserError:
    """Return the error of a series that has the label `__error__`."""
    error = dict(labels).get(ERROR, "")
    shown = ", ".join(f"{name if is_plain_label(name) else go_quote(name)}={go_quote(value)}" for name, value in labels)
    return UserError(
        f"pipeline error: '{error}' for series: '{{{shown}}}'.\n"
        f'Use a label filter to intentionally skip this error. (e.g | __error__!="{error}").\n'
        'To skip all potential errors you can match empty errors.(e.g __error__="")\n'
        'The label filter can also be specified after unwrap. (e.g | unwrap latency | __error__="" )\n'
    )
