"""Parts of rules are what the raw query answers: random rules over random and odd lines, beside the real engine."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import event, given, reject, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

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
from lakerunner.pipeline import rule_parts
from lakerunner.pipeline.make_segments import Raw, make_segments
from lakerunner.pipeline.rule_parts import BUCKET_NS, PART_SCHEMA, RuleCount, RuleParts
from lakerunner.pipeline.transcode.columns import GUESSED
from lakerunner.pipeline.transcode.formats import TRANSCODERS
from lakerunner.query.engine import Engine
from lakerunner.query.options import Options
from logql.test_column_samples import FILTERS, LINE_FILTERS, NAMES, PARSERS, RULES, SELECTORS, odd_requests
from logql.test_logql_streams import NS, otlp
from pipeline.otlp_oracle import MODIFIED_NS
from pipeline.segment_rows import rows_of_segments
from pipeline.test_transcode_loki import framed, push_protobuf
from pipeline.transcode_oracle import add
from query.sample_lake import OWN, Lake, removed

SECOND = 1_000_000_000
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


def check(rows: Rows, one: RuleVersion, rules: StreamRules = DEFAULT_RULES) -> str:
    """Compare parts with the answer, and return what kind of answer it is."""
    value = "count" if one.rule.measure.kind == "count" else "sum"
    expected = rows.answer(one, rules)
    assert problem(folded(rows.parts(one, rules), value), expected, one) is None
    return "fails" if isinstance(expected, str) else "answers" if expected else "is empty"


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
    event(check(rows["odd"], random_version(f"{selector} {stages}", measure, end, dimensions), RULES[rules]))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32), measure=MEASURES, end=ENDS)
def test_parts_of_random_lines_are_the_answer_of_the_query(
    rows: Mapping[str, Rows], seed: int, measure: tuple[str, str], end: str
) -> None:
    chance = random.Random(seed)
    names = ("app", "env", "service_name", "detected_level", "level", "status", "method", "trace_id", "nothing")
    selector = Grammar(chance).rule_selector()
    one = random_version(selector, measure, end, chance.sample(names, chance.randrange(4)))
    event(check(rows["random"], one))


# ---- single laws


ALL = '{service_name=~".+"}'


def test_batches_of_ingest_give_what_stored_ones_give(rows: Mapping[str, Rows]) -> None:
    data, _ = odd_requests(1, SECOND)[1]  # OTLP: dictionaries, maps, bodies that are no texts
    raw = Raw(SourceObject("bucket", "1.binpb", "etag", len(data), MODIFIED_NS), memoryview(data))
    stored = [(segment, batches) for segment, batches in rows["odd"].segments if segment.ingested == 1]
    versions = [
        version(f"{ALL} | json", "sum(size)", "path", "a"),
        version(f'{ALL} |= "00"', "bytes", "detected_level", "x_extracted", "status"),
        version(f"{ALL} | logfmt", "histogram(status)", "trace_id", "flags", "severity_text", "scope_name"),
    ]
    for (columns, batches), (segment, as_stored) in zip(rows_of_segments([raw]), stored, strict=True):
        parts = RuleParts(versions, columns, DEFAULT_RULES)
        for batch in batches:
            parts.add(batch)
        expected = parts_of(versions, segment, as_stored, DEFAULT_RULES)
        assert shown(parts.finish()) == shown(expected.finish())
        assert parts.counts.keys() == expected.counts.keys() == set(versions)


def shown(made: Iterable[tuple[RuleVersion, pa.RecordBatch]]) -> list[Any]:
    """Return parts in an order that does not depend on that of the batches."""
    return [(one.rule, sorted(map(repr, batch.to_pylist()))) for one, batch in made]


@given(cuts=st.lists(st.integers(0, 300), max_size=6))
def test_parts_do_not_depend_on_how_rows_are_cut(rows: Mapping[str, Rows], cuts: list[int]) -> None:
    versions = [
        version(f"{ALL} | json", "histogram(status)", "path"),
        version(f"{ALL}", "count", "detected_level", "app"),
    ]
    for segment, batches in rows["random"].segments:
        whole = pa.Table.from_batches(batches)
        bounds = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
        cut = [whole.slice(start, end - start) for start, end in pairwise(bounds)]
        again = parts_of(
            versions, segment, [b for one in cut for b in one.combine_chunks().to_batches()], DEFAULT_RULES
        )
        assert shown(again.finish()) == shown(parts_of(versions, segment, batches, DEFAULT_RULES).finish())


def test_negative_parts_take_rows_back(rows: Mapping[str, Rows]) -> None:
    one = version(f'{ALL} | logfmt | status=~"[0-9]+"', "histogram(status)", "method")
    plus, minus = rows["random"].parts(one), rows["random"].parts(one, sign=-1)
    assert plus
    assert len(plus) == len(minus)
    for added, taken in zip(plus, minus, strict=True):
        assert added.schema == taken.schema == PART_SCHEMA
        for row, back in zip(added.to_pylist(), taken.to_pylist(), strict=True):
            assert (row["labels"], row["timestamp"], row["scale"]) == (back["labels"], back["timestamp"], back["scale"])
            assert [row[name] + back[name] for name in ("count", "sum", "sum_error")] == [0, 0, 0]
            assert (back["min"], back["max"]) == (None, None)
            assert (row["zero_count"] + back["zero_count"]) % 2**64 == 0
            for side in ("positive", "negative"):
                assert (row[side] is None) == (back[side] is None)
                if row[side]:
                    assert row[side]["offset"] == back[side]["offset"]
                    sums = [(a + b) % 2**64 for a, b in zip(row[side]["counts"], back[side]["counts"], strict=True)]
                    assert set(sums) == {0}


@pytest.fixture
def lines(tmp_path: Path) -> Iterator[LineLake]:
    lake = Lake(tmp_path)
    yield LineLake(lake)
    lake.close()


class LineLake:
    """A lake of one delivery of OTLP."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake

    def parts(self, versions: Sequence[RuleVersion], *records: tuple[int, Any], size: int = 40) -> RuleParts:
        """Return the parts of lines at these times."""
        sent: list[Any] = [({"time_unix_nano": time}, line, {}) for time, line in records]
        add_request(self.lake, 0, otlp({"service.name": "a"}, *sent))
        (segment,) = self.lake.all
        file = pq.ParquetFile(self.lake.directory / "store" / segment.path)
        return parts_of(versions, segment, file.iter_batches(batch_size=size), DEFAULT_RULES)


def points(parts: RuleParts) -> list[Any]:
    names = ("count", "sum", "min", "max")
    return [
        (orjson.loads(row["labels"]), (row["timestamp"] - NS) / SECOND, *(row[name] for name in names))
        for _, batch in parts.finish()
        for row in sorted(batch.to_pylist(), key=lambda row: (row["labels"], row["timestamp"]))
    ]


@pytest.mark.parametrize("rules", sorted(RULES))
@pytest.mark.parametrize(
    "dimensions", [("http_status",), ("observed_timestamp",), ("detected_level",), ("rare_x",), ("flags", "lib_name")]
)
def test_labels_come_from_all_that_can_give_them(lines: LineLake, dimensions: tuple[str, ...], rules: str) -> None:
    records = []
    for number in range(900):
        time_ns, later = NS + number // 4, (number + 1) % 2
        fields = {"time_unix_nano": time_ns, "observed_time_unix_nano": time_ns + later, "flags": later}
        attributes: dict[str, Any] = {"http": {"status": number % 3}}
        attributes |= {"level": ""} if number % 5 == 0 else {}
        attributes |= {"rare": {"x": number}} if number % 400 == 0 else {}
        records.append((fields, f"{('info', 'ERROR')[number % 2]} {number}", attributes))
    data = ExportLogsServiceRequest.FromString(otlp({"service.name": "a"}, *records))
    add(data.resource_logs[0].scope_logs[0].scope.attributes, {"lib": {"name": "l"}})
    add_request(lines.lake, 0, data.SerializeToString())
    found = Rows.of(lines.lake)
    assert check(found, version(f'{ALL} |= " "', "count", *dimensions), RULES[rules]) == "answers"  # reads lines
    one = version(ALL, "count", *dimensions)
    assert check(found, one, RULES[rules]) == "answers"
    series = {labels for labels, _ in folded(found.parts(one, RULES[rules]), "count")}
    assert len(series) > 1 or (dimensions, rules) == (("detected_level",), "off")


def test_a_bucket_ends_with_its_last_nanosecond(lines: LineLake) -> None:
    times = (NS - 10 * SECOND, NS - 10 * SECOND + 1, NS - 1, NS, NS + 1, NS + 10 * SECOND)
    found = points(lines.parts([version(ALL, "bytes")], *((time, "x" * n) for n, time in enumerate(times))))
    assert found == [([], -10.0, 1, 0.0, 0.0, 0.0), ([], 0.0, 3, 6.0, 1.0, 3.0), ([], 10.0, 2, 9.0, 4.0, 5.0)]


def test_rows_with_errors_count_and_add_nothing(lines: LineLake) -> None:
    count, total = version(f"{ALL} | json", "bytes", "k"), version(f"{ALL} | json", "sum(n)", "k")
    texts = ('{"n": 1, "k": "a"}', "text", '{"n": "x", "k": "a"}', '{"k": "a"}', "more text")
    parts = lines.parts([count, total], *((NS, text) for text in texts))
    assert points(parts) == [
        ([["__error__", "JSONParserErr"]], 0.0, 2, 0.0, None, None),
        ([["k", "a"]], 0.0, 3, 48.0, 10.0, 20.0),
        ([["__error__", "SampleExtractionErr"]], 0.0, 1, 0.0, None, None),
        ([["k", "a"]], 0.0, 1, 1.0, 1.0, 1.0),
    ]
    assert replace(parts.counts[count], seconds=0.0) == RuleCount(rows=5, matched=3, errors=2, series=1)
    assert replace(parts.counts[total], seconds=0.0) == RuleCount(rows=5, matched=1, errors=1, series=1)


def test_lines_that_json_cannot_read_are_looked_at_once_for_equal_labels(lines: LineLake) -> None:
    """The row stages take 3 us for each; a line that begins like an object may have labels in front of its fault."""
    texts = ("text", "more", ' \t{"k": "a"', '{"k": "a"} more', "[1]", "", "é", "\v{}", "5")
    failing = version(f"{ALL} | json", "count", "k")
    parts = lines.parts([failing], *((NS, text) for text in texts))
    assert [row[:3] for row in points(parts)] == [([["__error__", "JSONParserErr"]], 0.0, 7), ([["k", "a"]], 0.0, 2)]
    rows = Rows.of(lines.lake)
    assert check(rows, failing) == "fails"
    for measure in ("count", "bytes"):
        for test in ('__error__="JSONParserErr"', '__error__!=""', '__error__=""'):
            assert check(rows, version(f"{ALL} | json | {test}", measure, "k")) in ("answers", "fails")
        assert check(rows, version(f'{ALL} | json | __error__!=""', measure, "__error_details__")) == "answers"


def test_a_line_that_a_stage_refuses_is_an_error(lines: LineLake) -> None:
    groups = "".join(f"(?P<g{n}>x{{0,50}})" for n in range(30))
    one = version(f"{ALL} | regexp `{groups}`", "count", "g1")
    assert points(lines.parts([one], (NS, "x" * 60_000), (NS, "y"))) == [
        ([["__error__", "TooLarge"]], 0.0, 1, 0.0, None, None),
        ([["g1", ""]], 0.0, 1, 1.0, 1.0, 1.0),
    ]


def test_labels_of_lines_that_are_not_utf8_have_the_replacement_character(lines: LineLake) -> None:
    raw = push_protobuf(({"app": "a"}, [(NS, "bad: ??", {})])).replace(b"??", b"\xff\xfe")
    add_request(lines.lake, 0, framed(raw), "lokipb")
    one = version(f"{ALL} | regexp `bad: (?P<what>.*)`", "bytes", "what")
    (parts,) = Rows.of(lines.lake).parts(one)
    assert [(row["labels"], row["sum"]) for row in parts.to_pylist()] == [('[["what","\ufffd\ufffd"]]', 7.0)]


@pytest.mark.parametrize("size", [1, 40])
def test_a_version_with_too_many_series_has_no_parts(lines: LineLake, size: int) -> None:
    few, many = (version(f"{ALL} | json", "count", "k", max_series=limit) for limit in (2, 3))
    sent = [(NS + n, f'{{"k": "{n % 3}"}}') for n in range(6)] + [(NS, "text")]
    parts = lines.parts([few, many], *sent, size=size)
    assert [one for one, _ in parts.finish()] == [many]
    assert parts.over_limit == (few,)
    assert (parts.counts[few].rows, parts.counts[many].series) == (7, 3)


def test_memory_is_bounded(lines: LineLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_parts, "_MAX_BYTES", 3000)
    small, large = version(ALL), version(f"{ALL} | logfmt", "count", "k")
    parts = lines.parts([small, large], *((NS + n, f"k={n}") for n in range(200)), size=4)
    assert [(one, batch.num_rows) for one, batch in parts.finish()] == [(small, 2)]
    assert parts.over_limit == (large,)


def test_a_version_that_cannot_run_is_reported(lines: LineLake) -> None:
    good, bad, regex = version(ALL), version("{app="), version('{app=~"["}')
    parts = lines.parts([bad, good, regex], (NS, "x"))
    assert [one for one, _ in parts.finish()] == [good]
    assert list(parts.refused) == [bad, regex]
    assert "line 1" in parts.refused[bad]


def test_rows_of_a_bucket_that_has_no_end_are_left_out(lines: LineLake) -> None:
    assert points(lines.parts([version(ALL)], (2**63 - SECOND, "x"))) == []


def test_sketches_hold_all_finite_values(lines: LineLake) -> None:
    values = (0, 1, 1, 2.5, -3, "NaN", "+Inf", 1e300)
    sent = [(NS, f"v={value}") for value in values]
    ((_, batch),) = lines.parts([version(f"{ALL} | logfmt", "histogram(v)")], *sent, size=3).finish()
    (row,) = batch.to_pylist()
    assert (row["count"], row["scale"], row["zero_count"]) == (8, 6, 1)
    assert (sum(row["positive"]["counts"]), sum(row["negative"]["counts"])) == (4, 1)
    assert row["positive"]["offset"] == -1
    assert np.isnan(row["sum"])
