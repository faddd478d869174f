"""Conditions of LogQL are sound: no row that passes a query is in a segment or row group that they leave out, or left
out of the relation.

The rows are odd on purpose: OTLP and Loki streams, keys that become the same name, maps, bodies of all kinds. What
passes is decided by the pipeline itself, over all rows; what is left out by real segments with many row groups.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from lakerunner.logql.line_conditions import line_conditions, scan_conditions
from lakerunner.logql.log_plan import LogqlQuestion, compile_logql
from lakerunner.logql.log_rows import LogReader, LogRow, lines_scan, source_sql
from lakerunner.logql.stages.line_labels import LineLabels
from lakerunner.logql.stages.pipeline import compile_stages
from lakerunner.logql.text.parse import parse_logql
from lakerunner.logql.text.syntax import Pipeline
from lakerunner.model.segment import Segment
from lakerunner.model.streams.log_record import LOKI_STREAM, LOKI_STREAM_SERVICE
from lakerunner.model.streams.stream_rules import Action, AttributeRule, StreamRules
from lakerunner.model.text_index import TextIndex
from lakerunner.plan.plan import SqlFinish
from lakerunner.plan.scan import ROW_NUMBER, Scan, fingerprint_groups, internal_column, may_hold
from lakerunner.query.sandbox.instance import MACROS
from lakerunner.query.segment_cache.footers import Footer, read_footer
from lakerunner.query.segment_cache.lease import LeasedFile
from lakerunner.query.segment_cache.prune import TextQuestions, bloom_hash, ids_of, pruned_groups
from lakerunner.query.segment_cache.prune import may_hold as bloom_may_hold
from lakerunner.query.segment_cache.relation import relation_sql
from query.real_lake import Asking, RealLake
from query.sample_lake import HOUR, START

TRACES = ["0af7651916cd43dd8448eb211c80319c", "4bf92f3577b34da6a3ce929d0e0e4736", "00"]
SERVICES = ["cart", "pay", "shop", ""]
WORDS = [
    "refused",
    "connection",
    "edge case",
    "<b>",
    "5e-7",
    "u003cdiv",
    "cdiv",
    "Timeout",
    "null",
    'a "q" \\ b',
    "été",
]
RESOURCE_KEYS = ["service.name", "service_name", "service", "app", "job", "container", "k8s.container.name", "env"]
RESOURCE_KEYS += ["detected_level", "severity"]
RECORD_KEYS = ["trace_id", "trace.id", "trace", "user", "user.id", "user__id", "status", "severity_text", "zone"]
RECORD_KEYS += ["detected.level", "level"]
NAMES = ["service_name", "env", "job", "container", "k8s_container_name", "trace_id", "user_id", "user__id", "status"]
NAMES += ["user", "severity_text", "trace", "scope_name", "zone_a", *["detected_level"] * 4]
VALUES = ["cart", "pay", "prod", "unknown_service", "5", "0.5", "1", "true", "é", "lib", *TRACES, TRACES[0].upper()]
VALUES += ["error", "info", "unknown"]
RULES = [
    StreamRules(),
    StreamRules(detect_levels=False, service_labels=("job", "app")),
    StreamRules(service_labels=()),
    StreamRules((AttributeRule(Action.LABEL, ("service_name", "env")),)),
    StreamRules(
        (AttributeRule(Action.LABEL, ("env", "service")), AttributeRule(Action.DROP, regex=".*")), (), (), True
    ),
    StreamRules((AttributeRule(Action.LABEL, regex="en.|job"),)),
    StreamRules((AttributeRule(Action.DROP, ("job",)), AttributeRule(Action.LABEL, ("job", "app")))),
    StreamRules((), (), (AttributeRule(Action.DROP, ("level",)),)),
]


def fill(value: AnyValue, chance: random.Random, texts: list[str], depth: int = 0) -> None:
    kind = chance.random()
    if kind < 0.6 or depth > 2:
        value.string_value = chance.choice(texts)
    elif kind < 0.7:
        value.int_value = chance.choice([5, 1, 404])
    elif kind < 0.78:
        value.double_value = chance.choice([5.0, 0.5, 5e-7, float("nan"), float("inf"), 1e21])
    elif kind < 0.83:
        value.bytes_value = chance.choice([b"\xff\x00", bytes.fromhex(TRACES[0]), b"refused"])
    elif kind < 0.88:
        value.bool_value = True
    elif kind < 0.95:
        for _ in range(chance.randrange(3)):
            item = value.kvlist_value.values.add(key=chance.choice(["id", "name", "a", "", "x.y", "refused"]))
            fill(item.value, chance, texts, depth + 1)
    else:
        fill(value.array_value.values.add(), chance, texts, depth + 1)


def odd_records(request: Any, chance: random.Random, *, plain: bool) -> None:
    for n in range(60):
        resource = request.resource_logs.add()
        resource.schema_url = chance.choice(["", "https://opentelemetry.io/schemas/1.26.0", LOKI_STREAM])
        keys = [key for key in RESOURCE_KEYS if chance.random() < 0.3]
        for key in keys:
            fill(resource.resource.attributes.add(key=key).value, chance, [*SERVICES, "prod"])
        if resource.schema_url == LOKI_STREAM and "service.name" not in keys and chance.random() < 0.7:
            resource.schema_url = LOKI_STREAM_SERVICE  # as pipeline/transcode/loki.py does it
            found = {one.key: one.value for one in resource.resource.attributes}
            named = [found[key] for key in ("service_name", "service", "app", "job") if key in found]
            if named:
                resource.resource.attributes.add(key="service.name").value.CopyFrom(named[0])
        scope = resource.scope_logs.add()
        scope.scope.name = chance.choice(["", "lib"])
        for _ in range(3):
            record = scope.log_records.add(time_unix_nano=START + n * 1000)
            if plain or chance.random() < 0.6:
                record.body.string_value = f"{chance.choice(WORDS)} {chance.choice(WORDS)} {chance.choice(TRACES)}"
            else:
                fill(record.body, chance, [*WORDS, *(f"{word} then {WORDS[0]}" for word in WORDS)])
            record.trace_id = bytes.fromhex(chance.choice([*TRACES, ""]))
            record.severity_text = chance.choice(["", "pay", "INFO"])
            record.severity_number = chance.choice([0, 9, 17])
            for key in RECORD_KEYS:
                if chance.random() < (0.004 if key == "zone" else 0.25):
                    fill(record.attributes.add(key=key).value, chance, [*VALUES, ""])


@dataclass(frozen=True)
class Held:
    """A segment, its rows as the reader has them by rules, and what pruning looks at."""

    segment: Segment
    footer: Footer
    texts: TextIndex
    path: Path
    batches: list[pa.RecordBatch]

    def left_out(self, scan: Scan) -> set[int]:
        """The row groups that the conditions exclude; all of them if the segment's fingerprints do."""
        if not may_hold(self.segment.fingerprints, fingerprint_groups("logs", scan.conditions)):
            return set(range(self.footer.groups))
        found = TextQuestions(scan).findings(self.texts, self.segment)
        dead = set(range(self.footer.groups)) - found.alive
        blooms = {leaf: self._may_hold(*ids) for leaf, ids in ids_of(scan).items()}
        return dead | pruned_groups(scan, self.segment, self.footer, found, blooms).keys()

    def _may_hold(self, column: str, ids: list[bytes]) -> set[int]:
        data, hashes = self.path.read_bytes(), [bloom_hash(one) for one in ids]
        places = [(group, self.footer.bloom(column, group)) for group in range(self.footer.groups)]
        read = lambda start, length: data[start : start + length]  # noqa: E731
        return {group for group, place in places if place is None or bloom_may_hold(read, place, hashes)}

    def group_of(self, row: LogRow) -> int:
        number = row.place.row_number
        return next(n for n, (first, end) in enumerate(self.footer.rows) if first <= number < end)


def opened(lake: RealLake, segment: Segment, batches: list[pa.RecordBatch]) -> Held:
    texts = TextIndex((lake.store.root / segment.side_path("text.bin")).read_bytes())
    path = lake.store.root / segment.path
    return Held(segment, read_footer(path, segment.path), texts, path, batches)


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> list[Held]:
    lake = RealLake(tmp_path_factory.mktemp("odd"))
    for seed in range(4):
        lake.add(partial(odd_records, chance=random.Random(seed), plain=seed == 0), 3000)
    asking = Asking(lake.cache(), lake.directory)
    scan = lines_scan(START, START + HOUR)
    sql = source_sql(scan)
    made = [opened(lake, one, asking.ask(scan, sql, [one])[0].to_batches()) for one in lake.segments]
    assert all(one.footer.groups > 3 for one in made)
    return made


quoted = st.sampled_from([*WORDS, *TRACES, *VALUES, "edge", "refu", "e case", "efused then"]).map(
    lambda text: '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
)
patterns = st.sampled_from(
    ["`refused|Timeout`", "`(cart|pay)`", "`(?i)TIMEOUT`", "`edge.case`", "`u003c(div|b)`", "`0af7[0-9a-f]+`", "`.*`"]
)
equality = st.builds(lambda n, v: f"{n}={v}", st.sampled_from(NAMES), st.sampled_from(VALUES).map('"{}"'.format))
matching = st.builds(
    lambda n, o, p: f"{n}{o}{p}", st.sampled_from(NAMES), st.sampled_from(["=~", "!~"]), patterns | st.just("`.+`")
)
unequal = st.builds(lambda n, v: f"{n}!={v}", st.sampled_from(NAMES), st.sampled_from(['""', '"cart"']))
tests = st.one_of(
    equality,
    matching,
    unequal,
    st.builds(lambda a, o, b: f"{a} {o} {b}", equality, st.sampled_from(["or", "and"]), equality | matching),
    st.builds(lambda n: f"{n} >= 1", st.sampled_from(NAMES)),
).map("| {}".format)
filters = st.one_of(
    st.builds(lambda o, a: f"{o} {a}", st.sampled_from(["|=", "|=", "|=", "!="]), quoted),
    st.builds(lambda a, b: f"|= {a} or {b}", quoted, quoted),
    st.builds(lambda o, p: f"{o} {p}", st.sampled_from(["|~", "!~"]), patterns),
    st.sampled_from(['|> "<_>refused<_>"', '|> "<_> <_>"', '|> "edge case<_>"']),
)
others = st.sampled_from(["| json", "| logfmt", '| label_format user_id="pay"', "| line_format `refused`"])
others |= st.sampled_from(["| decolorize", "| drop trace_id", "| keep env", "| unpack", "| label_format status=env"])
queries = st.builds(
    lambda first, more, stages: f"{{{', '.join([first, *more])}}} {' '.join(stages)}",
    equality | st.just("service_name=~`.+`") | st.just("service_name=~`cart|pay`"),
    st.lists(equality | matching | unequal, max_size=1),
    st.lists(filters | tests | filters | tests | others, max_size=3),
)


def passing(held: Held, pipeline: Pipeline, rules: StreamRules) -> Iterator[LogRow]:
    reader, stages = LogReader(pipeline.matchers, rules), compile_stages(pipeline.stages)
    for batch in held.batches:
        for row in reader.rows(batch):
            labels = LineLabels(row.stream, row.metadata)
            if stages.process(row.place.timestamp, row.line, labels) is not None:
                yield row


def kept_by_sql(connection: duckdb.DuckDBPyConnection, one: Held, pipeline: Pipeline) -> set[int]:
    """The numbers of the rows that DuckDB lets through."""
    where = " AND ".join(("true", *line_conditions(pipeline.stages)))
    found = connection.execute(f'SELECT row_number FROM "{one.segment.id}" WHERE {where}').fetchall()
    return {number for (number,) in found}


def rows_of(connection: duckdb.DuckDBPyConnection, one: Held, scan: Scan) -> set[int]:
    """The numbers of the rows that the scan's relation has."""
    relation = relation_sql(scan, [one.segment], {one.segment.id: LeasedFile(one.path)})
    number = internal_column(scan.relation, ROW_NUMBER)
    return {row for (row,) in connection.execute(f'SELECT "{number}" FROM ({relation})').fetchall()}


@pytest.fixture(scope="module")
def connection(held: list[Held]) -> duckdb.DuckDBPyConnection:
    made = duckdb.connect(config={"python_enable_replacements": "false", "threads": "1"})
    for one in held:
        table = pa.Table.from_batches(one.batches).select(["row_number", "message", "body"])
        made.register("given", table)
        made.execute(f'CREATE TABLE "{one.segment.id}" AS FROM given')
    for macro in MACROS:
        made.execute(macro)
    return made


@settings(max_examples=60, deadline=None)
@given(query=queries, rules=st.sampled_from(RULES))
def test_no_row_that_passes_is_left_out(
    held: list[Held], connection: duckdb.DuckDBPyConnection, query: str, rules: StreamRules
) -> None:
    pipeline = parse_logql(query)
    assert isinstance(pipeline, Pipeline)
    scan = lines_scan(START, START + HOUR, scan_conditions(pipeline.matchers, pipeline.stages, rules))
    for one in held:
        left_out = one.left_out(scan)
        found = list(passing(one, pipeline, rules))
        lost = [row for row in found if one.group_of(row) in left_out]
        assert not lost, (scan.conditions, lost[0])
        numbers = {row.place.row_number for row in found}
        assert numbers <= kept_by_sql(connection, one, pipeline)
        assert numbers <= rows_of(connection, one, scan)


# ---- what is left out


def clean_records(request: Any, kind: str) -> None:
    """1,000 lines of each of four services, one trace id a line: strings or maps by OTLP, or a Loki stream."""
    chance = random.Random(kind)
    for service in ("cart", "pay", "shop", "zoo"):
        resource = request.resource_logs.add()
        name = "service_name" if kind == "loki" else "service.name"
        resource.resource.attributes.add(key=name).value.string_value = service
        resource.resource.attributes.add(key="k8s.container.name").value.string_value = "main"
        if kind == "loki":
            resource.schema_url = LOKI_STREAM_SERVICE
            resource.resource.attributes.add(key="service.name").value.string_value = service
        scope = resource.scope_logs.add()
        for n in range(1000):
            record = scope.log_records.add(time_unix_nano=START + n * 1000)
            trace = chance.randbytes(16)
            record.severity_number = 17 if n % 100 == 0 else 9
            line = f"{service} took {n} ms, trace {trace.hex()}"
            if kind == "maps":
                record.body.kvlist_value.values.add(key="text").value.string_value = line
            else:
                record.body.string_value = line
            if kind == "loki":
                record.attributes.add(key="trace_id").value.string_value = trace.hex()
            else:
                record.trace_id = trace


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> list[Held]:
    lake = RealLake(tmp_path_factory.mktemp("clean"))
    for kind in ("strings", "maps", "loki"):
        lake.add(partial(clean_records, kind=kind), 5_000)
    made = [opened(lake, segment, []) for segment in lake.segments]
    assert all(one.footer.groups >= 70 for one in made)
    return made


_PAY = "pay took 17 ms"
_ID = random.Random("loki").randbytes(16).hex()  # of the first line of the Loki stream


@pytest.mark.parametrize(
    ("query", "most"),
    [
        # The most row groups that may be read of strings, maps and the Loki stream, by index, statistics, text and
        # bloom filters; there are 70 at least.
        ('{service_name="absent"}', [0, 0, 0]),
        ('{service_name="pay"}', [26, 26, 26]),
        ('{service_name=~"pay|absent"}', [26, 26, 26]),
        ('{k8s_container_name="absent"}', [0, 0, 0]),
        ('{namespace="absent"}', [0, 0, 0]),
        ('{service_name=~".+"} |= "absent"', [0, 0, 0]),
        ('{service_name=~".+"} |= "absent" or "missing"', [0, 0, 0]),
        ('{service_name=~".+"} |~ "(?i)took .* (absent|missing)"', [0, 0, 0]),
        ('{service_name=~".+"} |> "<_> absent <_>"', [0, 0, 0]),
        ('{service_name=~".+"} | json | decolorize |= "absent"', [0, 0, 0]),
        (f'{{service_name=~".+"}} |= "{_PAY}"', [4, 4, 4]),
        (f'{{service_name=~".+"}} |= "{_ID}"', [0, 0, 1]),
        (f'{{service_name=~".+"}} | trace_id="{_ID}"', [1, 1, 1]),
        (f'{{service_name=~".+"}} | trace_id="{_ID}" or trace_id="00"', [1, 1, 1]),
        ('{service_name=~".+"} | user_id="5"', [0, 0, 0]),
        ('{service_name=~".+"} | user_id > 5', [0, 0, 0]),
    ],
)
def test_row_groups_without_a_match_are_left_out(clean: list[Held], query: str, most: list[int]) -> None:
    read = [one.footer.groups - len(one.left_out(scan_of(query))) for one in clean]
    assert all(number <= limit for number, limit in zip(read, most, strict=True)), read


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        # The rows of strings, maps and the Loki stream that operators get, of 4,000 each.
        ('{service_name="absent"}', [0, 0, 0]),
        ('{service_name="pay"}', [1000, 1000, 1000]),
        ('{k8s_container_name="absent"}', [0, 0, 0]),
        (f'{{service_name=~".+"}} | trace_id="{_ID}"', [0, 0, 1]),
        (f'{{service_name="pay"}} | trace_id="{_ID}"', [0, 0, 0]),
        ('{service_name=~".+"} | user_id > 5', [0, 0, 0]),
        # A Loki stream has no severity: its level is the word "trace" of the lines.
        ('{service_name=~".+"} | detected_level="error"', [40, 40, 0]),
        ('{service_name="pay"} | detected_level=~"trace|fatal"', [0, 0, 1000]),
        ('{service_name=~".+"} |= "absent"', [4000, 4000, 4000]),
    ],
)
def test_rows_without_a_match_are_left_out(
    clean: list[Held], connection: duckdb.DuckDBPyConnection, query: str, expected: list[int]
) -> None:
    assert [len(rows_of(connection, one, scan_of(query))) for one in clean] == expected


@pytest.mark.parametrize(
    "query",
    [
        '{service_name=~".+"} != "absent"',
        '{service_name=~".+"} |= "absent" or ""',
        '{service_name=~".+"} | line_format "{{.x}}" |= "absent"',
        '{service_name=~".+"} | json | text="absent"',
        '{service_name=~".+"} | label_format user_id="5" | user_id="5"',
        '{service_name=~".+"} | user_id!="5"',
        '{service_name=~".+", job=~"a|"}',
    ],
)
def test_what_may_match_anything_leaves_nothing_out(clean: list[Held], query: str) -> None:
    assert all(one.left_out(scan_of(query)) == set() for one in clean)


@pytest.mark.parametrize(
    ("query", "limit", "is_small"),
    [
        ('{service_name="pay"}', 100, True),
        ('{service_name="pay"} | json', 100, True),
        ('{service_name="pay"}', None, False),
        ('{service_name="pay"} |= "a needle"', 100, False),
        ('{service_name="pay"} | status="500"', 100, False),
    ],
)
def test_the_first_round_is_small_where_most_lines_pass(query: str, limit: int | None, is_small: bool) -> None:
    plan = compile_logql(LogqlQuestion(query, START, START + HOUR, 1, limit), START)
    assert isinstance(plan.finish, SqlFinish)
    assert plan.finish.rounds is not None
    assert (plan.finish.rounds.first_bytes > 0) is is_small


def scan_of(query: str) -> Scan:
    pipeline = parse_logql(query)
    assert isinstance(pipeline, Pipeline)
    return lines_scan(START, START + HOUR, scan_conditions(pipeline.matchers, pipeline.stages, StreamRules()))
