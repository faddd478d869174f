"""Run stages on one line, as tests write them: `| json | status >= 500`."""

from __future__ import annotations

from collections.abc import Mapping

from lakerunner.logql.stages.hints import NO_HINTS, ParserHints
from lakerunner.logql.stages.line_labels import LineLabels
from lakerunner.logql.stages.pipeline import compile_stages
from lakerunner.logql.stages.sample import compile_extractor
from lakerunner.logql.text.parse import parse_logql
from lakerunner.logql.text.syntax import Grouping, Pipeline, RangeAggregation, VectorAggregation

NONE: Mapping[str, str] = {}


def run_stages(
    stages: str,
    line: str,
    stream: Mapping[str, str] = NONE,
    metadata: Mapping[str, str] = NONE,
    hints: ParserHints = NO_HINTS,
) -> tuple[str | None, dict[str, str]]:
    """Return the line, None if it is dropped, and all of its labels."""
    query = parse_logql(f'{{app="a"}} {stages}')
    assert isinstance(query, Pipeline)
    labels = LineLabels(stream, metadata)
    made = compile_stages(query.stages, hints).process(0, line, labels)
    return made, labels.all()


def labels_after(
    stages: str, line: str, stream: Mapping[str, str] = NONE, metadata: Mapping[str, str] = NONE
) -> dict[str, str]:
    return run_stages(stages, line, stream, metadata)[1]


def is_kept(stages: str, line: str, stream: Mapping[str, str] = NONE) -> bool:
    return run_stages(stages, line, stream)[0] is not None


def sample_of(
    query: str, line: str, stream: Mapping[str, str] = NONE, metadata: Mapping[str, str] = NONE
) -> tuple[float, dict[str, str]] | None:
    """Return value and labels of the sample that a line gives, None if it gives none. A sum is pushed down."""
    parsed = parse_logql(query)
    pushed: Grouping | None = None
    if isinstance(parsed, VectorAggregation):
        if parsed.op == "sum":
            pushed = parsed.grouping or Grouping(())
        parsed = parsed.inner
    assert isinstance(parsed, RangeAggregation)
    extract = compile_extractor(parsed, pushed)
    labels = LineLabels(stream, metadata)
    value = extract(0, line, labels)
    return None if value is None else (value, dict(extract.series(labels)))
