"""Parts of rules are what the raw query answers: random rules over random and odd lines, beside the real engine."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import event, given, reject, settings
from hypothesis import strategies as st

from fuzz.logql.compare import series_of
from fuzz.logql.grammar import Grammar
from fuzz.logql.lakes import ingested, small_row_groups
from fuzz.logql.lines import random_deliveries
from lakerunner.logql.log_plan import LogqlQuestion, compile_logql
from lakerunner.logql.rule_query import rule_query
from lakerunner.logql.text.printer import exact_text
from lakerunner.model.errors import UserError
from lakerunner.model.metric_rules.metric_rule import Measure, MetricRule, RuleVersion
from lakerunner.model.segment import Segment
from lakerunner.model.signal import LOGS
from lakerunner.model.source import SourceObject
from lakerunner.model.streams.stream_rules import DEFAULT_RULES, StreamRules
from lakerunner.pipeline.make_segments import Raw, make_segments
from lakerunner.pipeline.rule_parts import BUCKET_NS, PART_SCHEMA, RuleCount, RuleParts
from lakerunner.pipeline.transcode.columns import GUESSED
from lakerunner.pipeline.transcode.formats import TRANSCODERS
from lakerunner.query.engine import Engine
from lakerunner.query.options import Options
from logql.test_column_samples import FILTERS, LINE_FILTERS, NAMES, PARSERS, RULES, SELECTORS, odd_requests
from logql.test_logql_streams import NS
from pipeline.otlp_oracle import MODIFIED_NS
from query.sample_lake import OWN, Lake, removed

SECOND = 1_000_000_000
_NOTHING = RuleCount()
Points = dict[tuple[frozenset[tuple[str, str]], int], Any]


def version(selector: str, measure: str = "count", *dimensions: str, **more: Any) -> RuleVersion:
    rule = MetricRule("r", "logs", selector, Measure.parse(measure), "made", tuple(sorted(set(dimensions))), **more)
    return RuleVersion(1, OWN, 1, rule)


@dataclass(frozen=True)
class Rows:
    """A lake, the batches of each of its segments, and the first and last end of their buckets."""

    engine: Engine
    segments: Sequence[tuple[Segment, Sequence[pa.RecordBatch]]]
    ends: tuple[int, int]

    @classmethod
    def of(cls, lake: Lake) -> Rows:
        files = [(one, pq.ParquetFile(lake.directory / "store" / one.path)) for one in lake.all]
        batches = [(segment, list(file.iter_batches(batch_size=40))) for segment, file in files]
        times = [(segment.time.start_ns, segment.time.end_ns - 1) for segment in lake.all]
        first, last = min(start for start, _ in times), max(end for _, end in times)
        return cls(lake.engine().engine, batches, (end_of(first), end_of(last)))

    def parts(self, one: RuleVersion, rules: StreamRules = DEFAULT_RULES, sign: int = 1) -> list[pa.RecordBatch]:
        found = []
        for segment, batches in self.segments:
            made = parts_of([one], segment, batches, rules)
            found += [batch for _, batch in made.finish(sign)]
        return found

    def answer(self, one: RuleVersion, rules: StreamRules = DEFAULT_RULES) -> Points | str:
        """Return what the raw query answers at the end of each bucket, or its error."""
        query = rule_query(one.rule)
        text = f"sum by ({', '.join(query.dimensions.labels)}) ({exact_text(query.aggregation)})"
        question = LogqlQuestion(text, *self.ends, BUCKET_NS, rules=rules)
        try:
            answer: Any = self.engine.answer(OWN, compile_logql(question, NS), Options(NS, text=text))
            (group,) = answer
        except UserError as error:
            return error.message
        found: Points = defaultdict(float)
        for labels, points in series_of(group.value, question.steps.times):
            for time, value in points:
                found[named(labels), time] += float(value)
        return dict(found)


def end_of(time: int) -> int:
    return -(-time // BUCKET_NS) * BUCKET_NS


def named(labels: Iterable[Sequence[str]]) -> frozenset[tuple[str, str]]:
    return frozenset((name, value) for name, value in labels if value)


def parts_of(
    versions: Sequence[RuleVersion], segment: Segment, batches: Iterable[pa.RecordBatch], rules: StreamRules
) -> RuleParts:
    made = RuleParts(versions, segment.columns, rules)
    for batch in batches:
        made.add(batch)
    return made


def folded(batches: Iterable[pa.RecordBatch], value: str) -> Points:
    found: Points = defaultdict(float)
    for batch in batches:
        assert batch.schema == PART_SCHEMA
        keys = set()
        for row in batch.to_pylist():
            key = named(orjson.loads(row["labels"])), row["timestamp"]
            keys.add((row["labels"], row["timestamp"]))
            lost = row["sum_error"] if value == "sum" else 0
            found[key] += row[value] + lost
        assert len(keys) == batch.num_rows, "a series and time is there twice"
    return dict(found)


def problem(found: Points, expected: Points | str, one: RuleVersion) -> str | None:
    """Describe how parts differ from the answer, None if they do not."""
    errors = [labels for labels, _ in found if [name for name, _ in labels] == ["__error__"]]
    if isinstance(expected, str):
        return None if errors else f"the query fails: {expected}"
    if errors and "__error__" not in one.rule.dimensions:
        return f"the query does not fail: {errors}"
    if errors:
        return None
    if found.keys() != expected.keys():
        return f"too many: {found.keys() - expected.keys()}, missing: {expected.keys() - found.keys()}"
    for key, value in expected.items():
        is_same = found[key] == value or (math.isnan(value) and math.isnan(found[key]))
        if not is_same and (value.is_integer() or not math.isclose(value, found[key], rel_tol=1e-12, abs_tol=1e-9)):
            return f"{key}: {found[key]}, expected {value}"
    return None


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Rows]]:
    lakes = {name: Lake(tmp_path_factory.mktemp(name)) for name in ("random", "odd")}
    with small_row_groups():
        lakes["random"].all += ingested(lakes["random"], random_deliveries(5)[:-1])  # the last came before
    for number, (data, format_) in enumerate(odd_requests(1, SECOND)):
        add_request(lakes["odd"], number, data, format_)
    yield {name: Rows.of(lake) for name, lake in lakes.items()}
    for lake in lakes.values():
        lake.close()
        removed(lake.directory)


def add_request(lake: Lake, number: int, data: bytes, format_: str = "") -> None:
    request = data
    if format_:
        request = TRANSCODERS[format_]("logs", memoryview(data), GUESSED.near(MODIFIED_NS)).require_complete()
    raw = Raw(SourceObject("bucket", f"{number}.binpb", "etag", len(request), MODIFIED_NS), memoryview(request))
    made = make_segments(LOGS, OWN, "default", [raw], lambda path, side: lake.store.put(path, bytes(side)))
    assert made.failed == ()
    lake.all += [replace(one, ingested=number) for one in made.segments]


# Measures, and label filters that leave what they can convert.
MEASURES = st.sampled_from(
    [
        ("count", ""),
        ("count", ""),
        ("bytes", ""),
        ("sum(status)", '| status=~"[0-9]+"'),
        ("sum(took)", '| took=~"[0-9.]+"'),
        ("sum(duration(took))", '| took=~".*s"'),
        ("sum(bytes(size))", '| size=~".*B"'),
        ("sum(a)", '| a!="x"'),
        ("histogram(took)", '| took=~"-?[0-9].?[0-9]*"'),
        ("histogram(duration(took))", '| took=~".*s"'),
    ]
)
ENDS = st.sampled_from(["", '| __error__=""', '| __error__=""'])
_NONE = st.just("")
STAGES = st.one_of(
    st.tuples(_NONE | LINE_FILTERS, PARSERS, _NONE | _NONE | FILTERS).map(" ".join),
    st.lists(st.one_of(LINE_FILTERS, PARSERS, FILTERS), max_size=3).map(" ".join),
)


def random_version(selector: str, measure: tuple[str, str], end: str, dimensions: Sequence[str]) -> RuleVersion:
    kind, converts = measure
    try:
        made = version(f"{selector} {converts if end else ''} {end}", kind, *dimensions)
        rule_query(made.rule)
    except UserError:  # `| unpack` and the like
        reject()
    return made


def check(rows: Rows, one: RuleVersion, rules: StreamRules = DEFAULT_RULES) -> None:
    value = "count" if one.rule.measure.kind == "count" else "sum"
    expected = rows.answer(one, rules)
    event("fails" if isinstance(expected, str) else "answers" if expected else "is empty")
    assert problem(folded(rows.parts(one, rules), value), expected, one) is None


@settings(max_examples=80, deadline=None)
@given(
    selector=SELECTORS,
    stages=STAGES,
    measure=MEASURES,
    end=ENDS,
    dimensions=st.lists(NAMES, max_size=3),
    rules=st.sampled_from(sorted(RULES)),
)
def test_parts_of_odd_lines_are_the_answer_of_the_query(
    rows: Mapping[str, Rows],
    selector: str,
    stages: str,
    measure: tuple[str, str],
    end: str,
    dimensions: list[str],
    rules: str,
) -> None:
    check(rows["odd"], random_version(f"{selector} {stages}", measure, end, dimensions), RULES[rules])


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32), measure=MEASURES, end=ENDS)
def test_parts_of_random_lines_are_the_answer_of_the_query(
    rows: Mapping[str, Rows], seed: int, measure: tuple[str, str], end: str
) -> None:
    chance = random.Random(seed)
    names = ("app", "env", "service_name", "detected_level", "level", "status", "method", "trace_id", "nothing")
    selector = Grammar(chance).rule_selector()
    check(rows["random"], random_version(selector, measure, end, chance.sample(names, chance.randrange(4))))
