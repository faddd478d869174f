"""Samples from columns are those from rows: random range aggregations over lines of many kinds, computed both ways."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import event, given, reject, settings
from hypothesis import strategies as st

from lakerunner.logql.log_plan import LogqlQuestion, compile_logql
from lakerunner.logql.log_samples import LogSamples
from lakerunner.logql.metric_finish import LOGQL
from lakerunner.model.errors import UserError
from lakerunner.model.segment import Segment
from lakerunner.model.signal import LOGS
from lakerunner.model.source import SourceObject
from lakerunner.model.streams.stream_rules import DEFAULT_RULES, StreamRules
from lakerunner.pipeline.make_segments import Raw, make_segments
from lakerunner.pipeline.transcode.columns import GUESSED
from lakerunner.pipeline.transcode.formats import TRANSCODERS
from lakerunner.plan.plan import Leaf, Plan
from lakerunner.query.sandbox.instance import MACROS
from lakerunner.query.segment_cache.lease import LeasedFile
from lakerunner.query.segment_cache.relation import relation_sql
from lakerunner.series.aggregations.aggregation import NotSplit
from lakerunner.series.bounds import Bounds
from lakerunner.series.evaluation.series_finish import SeriesFinish
from lakerunner.series.notes import Notes
from lakerunner.series.values import Vector
from logql.test_logql_streams import NS, OFF, otlp
from pipeline.otlp_oracle import COLLECTOR, MODIFIED_NS, ORGANIZATION
from pipeline.test_transcode_loki import Stream, framed, push_protobuf

RULES = {
    "default": DEFAULT_RULES,
    "off": OFF,
    "own": StreamRules.from_json(
        {
            "resource_attributes": {"attributes_config": [{"action": "index_label", "attributes": ["level", "host"]}]},
            "log_attributes": [{"action": "drop", "regex": "sta.*"}],
        }
    ),
}
LINES = (
    '{"status": 500, "path": "/a", "took": "1.5s", "size": "2KB", "level": "error"}',
    '{"status": 200, "path": "/b", "took": "20ms", "n": {"x": 1, "status": 7}, "code": "é"}',
    '{"status": "many", "path": "/c", "status_extracted": "3"}',
    '{"path": "/d", "a": "1", "status": 404} trailing',
    '{"status": 503, "pa\\u0074h": "/e", "took": 3}',
    '{"status": 1, "path": "/f"',
    'status=500 path=/a took=1.5s level=warn msg="some words" size=2KB',
    "status=200 path=/b took=20ms a=1 a=2",
    'status=x path="/\\"q" took=oops =bad',
    "GET /a 500 1.5s",
    "GET /b 200 20ms",
    "an ERROR: no route to 10.0.0.7",
    "",
    "bad: ??",
    "three\nlines\nINFO",
)
# Some are metadata or labels of the stream by chance, in all spellings that give the same names.
KEYS = (
    "status",
    "path",
    "a",
    "a.b",
    "a_b",
    "level",
    "took",
    "x_extracted",
    "__error__",
    "detected_level",
    "lakerunner.x",
    "9a",
)
VALUES: tuple[Any, ...] = ("1", "500", "x", "", "error", 7, 2.5, True, b"\xff", {"b": "deep", "status": 3}, [1, "two"])


def odd_requests(seed: int, apart_ns: int = 1) -> list[tuple[bytes, str]]:
    pick = random.Random(seed)

    def some(values: tuple[Any, ...], most: int = 3) -> dict[str, Any]:
        chances = [0.02 if key == "__error__" else 0.25 for key in KEYS]
        keys = [key for key, chance in zip(KEYS, chances, strict=True) if pick.random() < chance]
        return {key: pick.choice(values) for key in pick.sample(keys, min(most, len(keys)))}

    streams: list[Stream] = []
    for app in ("a", "b", "c"):
        entries = [(NS + pick.randrange(100) * apart_ns, pick.choice(LINES), some(VALUES[:5])) for _ in range(60)]
        streams.append(({"app": app, **pick.choice(({}, {"status": "old"}, {"level": "warn"}))}, entries))
    found = [(framed(push_protobuf(*streams).replace(b"??", b"\xff\xfe")), "lokipb")]
    for service in ("a", "b", "c"):
        records = []
        for number in range(60):
            fields: dict[str, Any] = {
                "time_unix_nano": NS + pick.randrange(100) * apart_ns,
                "flags": pick.choice((0, 0, 1)),
            }
            fields |= pick.choice(
                (dict[str, Any](), {"severity_number": 17}, {"severity_text": "Debug"}, {"event_name": "e"})
            )
            body = pick.choice(({"k": number}, 5, b"\xff")) if pick.random() < 0.1 else pick.choice(LINES)
            records.append((fields, body, some(VALUES)))
        resource = {"service.name": service, "host": "h", **pick.choice(({}, {"level": "info"}, {"a": {"b": "r"}}))}
        found.append((otlp(resource, *records), ""))
    return found + found[-1:] * (seed - 1)  # a delivery that came again


class Corpus:
    """Segments of some requests, read as a worker reads them."""

    def __init__(self, folder: Path, requests: list[tuple[bytes, str]]) -> None:
        self._segments: list[Segment] = []
        self._files: dict[Any, LeasedFile] = {}
        for number, (data, format_) in enumerate(requests):
            request = data
            if format_:
                request = TRANSCODERS[format_]("logs", memoryview(data), GUESSED.near(MODIFIED_NS)).require_complete()
            raw = Raw(SourceObject("bucket", f"{number}.binpb", "etag", len(request), MODIFIED_NS), memoryview(request))
            made = make_segments(LOGS, ORGANIZATION, COLLECTOR, [raw], lambda path, data: self._put(folder, path, data))
            assert made.failed == ()
            self._segments += made.segments
            self._files |= {segment.id: LeasedFile(folder / segment.path, None) for segment in made.segments}
        self._connection = duckdb.connect()
        for macro in MACROS:
            self._connection.execute(macro)
        self._known: dict[Any, pa.Table] = {}

    def samples(self, leaf: Leaf) -> Any:
        operator, scan = leaf.operator, leaf.scan
        assert isinstance(operator, LogSamples)
        key = scan, operator.source_sql(scan)
        if key not in self._known:
            relation = relation_sql(scan, self._segments, self._files, in_order=False)
            sql = f'WITH "{scan.relation}" AS ({relation}) {key[1]}'
            self._known[key] = self._connection.sql(sql).to_arrow_table()
        return operator.fold(list(operator.run(iter(self._known[key].to_batches(max_chunksize=64)))))

    @staticmethod
    def _put(folder: Path, path: str, data: memoryview) -> None:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Mapping[int, Corpus]:
    return {seed: Corpus(tmp_path_factory.mktemp(f"corpus{seed}"), odd_requests(seed)) for seed in (1, 2)}


NAMES = st.sampled_from(
    [
        "status",
        "path",
        "took",
        "a",
        "a_b",
        "app",
        "level",
        "detected_level",
        "service_name",
        "host",
        "severity_text",
        "status_extracted",
        "a_extracted",
        "x_extracted",
        "trace_id",
        "flags",
        "scope_name",
        "event_name",
        "__error__",
    ]
)
LINE_FILTERS = st.sampled_from(
    [
        '|= "00"',
        '!= "path" or "GET"',
        '|~ "[0-9]+ms|ERROR"',
        '!~ "s.a"',
        '|= ""',
        '|~ ".+"',
        '|> "GET <_> 500 <_>"',
        '|= ip("10.0.0.0/8")',
        '|= "00" or ""',
        '|~ "^three$"',
        '|= "\\xff"',
    ]
)
PARSERS = st.sampled_from(
    [
        "| json",
        "| json",
        "| logfmt",
        "| logfmt --strict",
        "| logfmt --keep-empty",
        '| pattern "<_> <path> <status> <took>"',
        '| json s="status"',
        "| unpack",
        '| regexp "(?P<status>[0-9]+)"',
    ]
)
TESTS = st.one_of(
    st.tuples(
        NAMES, st.sampled_from(['="500"', '!=""', '=~"[0-9]+"', '!~".*o.*"', ">= 500", "< 1s", "> 1KB", "= 7"])
    ).map("".join),
    st.just('a=ip("10.0.0.1")'),
)
FILTERS = st.one_of(
    TESTS.map("| {}".format),
    st.tuples(TESTS, st.sampled_from(["and", "or"]), TESTS).map(lambda three: "| {} {} {}".format(*three)),
    st.just('| __error__=""'),
)
OTHERS = st.sampled_from(
    [
        "| drop status",
        '| drop status="500", a',
        "| keep path, status",
        "| drop __error__, __error_details__",
        "| label_format path=status",
        '| label_format path="{{.status}}-{{.a}}"',
        '| label_format a="{{__line__}}"',
        '| line_format "{{.path}} 500"',
        "| decolorize",
    ]
)
STAGES = st.lists(st.one_of(LINE_FILTERS, PARSERS, PARSERS, FILTERS, FILTERS, OTHERS), max_size=5).map(" ".join)
SELECTORS = st.sampled_from(
    ['{service_name=~".+"}', '{service_name="a"}', '{app=~"a|b"}', '{service_name=~".+", service_name!="c"}']
)
BY = st.one_of(
    st.lists(NAMES, max_size=3).map(lambda names: f"sum by ({', '.join(names)})"),
    st.sampled_from(["sum", "sum without (status)", "max", "count by (path)"]),
)
UNWRAPS = st.sampled_from(
    ["status", "took", "duration(took)", "bytes(size)", "a", 'duration_seconds(took) | __error__=""']
)


@st.composite
def queries(draw: st.DrawFn) -> str:
    lines = f"{draw(SELECTORS)} {draw(STAGES)}"
    if draw(st.booleans()):
        op = draw(st.sampled_from(["count_over_time", "rate", "bytes_over_time", "bytes_rate", "absent_over_time"]))
        return f"{draw(BY)} ({op}({lines} [1h]))"
    op = draw(
        st.sampled_from(["sum_over_time", "max_over_time", "first_over_time", "quantile_over_time(0.5, ", "rate"])
    )
    grouping = draw(st.sampled_from(["", " by (path)", " without (a)"])) if op[0] in "mfq" else ""
    call = op if "(" in op else f"{op}("
    return f"{draw(BY)} ({call}{lines} | unwrap {draw(UNWRAPS)} [1h]){grouping})"


def _outcome(corpus: Corpus, plan: Plan) -> Any:
    finish, operator = plan.finish, plan.leaves[0].operator
    assert isinstance(finish, SeriesFinish)
    try:
        samples = corpus.samples(plan.leaves[0])
        found = finish.run({operator: samples}, _no_samples, Bounds(1_000_000, lambda: None), Notes(LOGQL.words))
    except UserError as error:
        return type(error), str(error)
    assert isinstance(found, Vector)
    values = [row[there].tobytes() for row, there in zip(found.values, found.present, strict=True)]
    return found.labels, values, found.present.tolist()


def _no_samples(operator: Any) -> Any:
    raise AssertionError(f"{operator} was not planned")


@settings(max_examples=50, deadline=None)
@given(
    query=queries(),
    window=st.sampled_from(["1h", "20ns", "21ns offset 4ns", "3ns"]),
    step=st.sampled_from([0, 1, 6, 20, 50]),
    seed=st.sampled_from([1, 2]),
    rules=st.sampled_from(sorted(RULES)),
)
def test_samples_from_columns_are_those_from_rows(
    corpora: Mapping[int, Corpus], query: str, window: str, step: int, seed: int, rules: str
) -> None:
    start = NS + 40
    question = LogqlQuestion(
        query.replace("[1h]", f"[{window.split()[0]}] {' '.join(window.split()[1:])}"),
        start,
        start + step * 4,
        step,
        rules=RULES[rules],
    )
    try:
        plan = compile_logql(question, NS)
    except UserError:  # `| drop a != "b" or "c"` and the like
        reject()
    assert isinstance(plan.finish, SeriesFinish)
    samples = plan.finish.unfolded()
    assert isinstance(samples.finish, SeriesFinish)
    expected = _outcome(corpora[seed], samples.finish.unfolded())
    for detail, one in (("sums", plan), ("samples", samples)):
        operator = one.leaves[0].operator
        assert isinstance(operator, LogSamples)
        try:
            found = _outcome(corpora[seed], one)
        except NotSplit:
            event(f"{detail}: gave up")  # the next plan is run then
            continue
        event(f"{detail}: {'by columns' if operator.uses_columns else 'by rows'}")
        assert found == expected
