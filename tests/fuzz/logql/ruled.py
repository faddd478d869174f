"""Random rules over the random rows, and queries that they may answer: from points and from lines alike.

Each delivery is ingested with some of the rules, so that all forms of coverage occur. `once`: as ingested, each
delivery once. `twice`: one delivery came twice. `compacted`: the same, with the segments of logs merged where their
rule sets agree, and those of points by rule.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fuzz.logql.grammar import LogqlQuery
from fuzz.logql.lakes import COMPACT_LIMITS, copied, ingest_delivery, small_row_groups
from fuzz.logql.lines import END, SECOND, START, random_deliveries
from lakerunner.logql.log_plan import LogqlQuestion, compile_logql
from lakerunner.model.errors import UserError
from lakerunner.model.labels import Labels
from lakerunner.model.metric_rules.metric_rule import Measure, MetricRule, RuleVersion
from lakerunner.model.segment import Segment
from lakerunner.model.time import HOUR_NS
from lakerunner.objects.open import StoreAddress
from lakerunner.pipeline.compact import CompactWork, compact_work
from lakerunner.pipeline.part_segments import NO_RULES, RuleBook
from lakerunner.query.engine import Engine
from lakerunner.query.options import Options
from query.sample_lake import OWN, Lake, removed

_SELECTORS = ('service_name=~".+"', 'app=~"cart|pay"', 'env="prod"', 'app=~".+", env=~".+"')
_MORE = ('service_name="cart"', 'app="cart"', 'env!="dev"', 'pod="p-1"')
_FILTERS = ("", "", '|= "refused"', '!= "cart"', '|~ "(?i)cart"')
_PARSERS = (
    "",
    "",
    "",
    "| logfmt",
    "| logfmt status, method",
    '| json | __error__=""',
    '| logfmt | status >= 400 | __error__=""',
)
_TESTS = (*[""] * 6, '| detected_level="error"', '| status=~"5.."', '| app="cart" or level="info"')
_DIMENSIONS = ("app", "env", "service_name", "detected_level", "level", "status", "method", "user")
_MEASURES = {
    "count": ("count_over_time", "rate"),
    "bytes": ("bytes_over_time", "bytes_rate"),
    "sum(status)": ("sum_over_time", "rate"),
    "sum(duration(took))": ("sum_over_time",),
}
_RANGES = (10, 10, 20, 60, 300, 300, 900, 15)
Series = dict[Labels, dict[int, float]]
_AROUND = ("{}", "{}", "topk(2, {})", "avg({})", "{} / 2")


@dataclass(frozen=True)
class Ruled:
    versions: tuple[RuleVersion, ...]
    engines: Mapping[str, Engine]
    lakes: Mapping[str, Lake]


def random_rule(chance: random.Random, number: int) -> RuleVersion:
    parts = (f"{{{chance.choice(_SELECTORS)}}}", chance.choice(_FILTERS), chance.choice(_PARSERS))
    dimensions = tuple(sorted(chance.sample(_DIMENSIONS, chance.randrange(6))))
    measure = Measure.parse(chance.choice(tuple(_MEASURES)))
    rule = MetricRule(f"r{number}", "logs", " ".join(filter(None, parts)), measure, f"made_{number}", dimensions)
    return RuleVersion(number + 1, OWN, 1, rule)


def query_for(chance: random.Random, version: RuleVersion) -> LogqlQuery:
    """Return a query that the rule may answer, or nearly so."""
    rule = version.rule
    selector, _, stages = rule.selector.partition("}")
    selector += f", {chance.choice(_MORE)}" if chance.random() < 0.15 else ""
    test = chance.choice(_TESTS)
    measured = str(rule.measure)
    unwrap = f"| unwrap {measured[4:-1]}" if measured.startswith("sum") else ""
    by = chance.sample(rule.dimensions, chance.randrange(len(rule.dimensions) + 1))
    if chance.random() < 0.05:
        by.append(chance.choice(_DIMENSIONS))
    op, range_ = chance.choice(_MEASURES[measured]), chance.choice(_RANGES)
    offset = f" offset {chance.choice((10, 60, 7))}s" if chance.random() < 0.1 else ""
    inner = f"{op}({selector}}}{stages} {test} {unwrap} [{range_}s]{offset})"
    text = chance.choice(_AROUND).format(f"sum by ({', '.join(by)}) ({inner})" if by else f"sum({inner})")
    return _timed(chance, text)


def _timed(chance: random.Random, text: str) -> LogqlQuery:
    if chance.random() < 0.3:
        end = START + chance.randrange(20, 960) * SECOND + chance.choice((0, 0, 1, 999_999_999))
        return LogqlQuery(text, end, end, 0)
    step = chance.choice((10, 30, 60, 60, 300, 300, 7)) * SECOND
    start = START // (10 * SECOND) * 10 * SECOND + chance.choice((0, 0, 0, 10, -60, 600, 3)) * SECOND
    return LogqlQuery(text, start, END + 60 * SECOND, step)


@contextmanager
def ruled_lakes(directory: Path, seed: int, rules: int = 6) -> Iterator[Ruled]:
    chance = random.Random(seed)
    versions = tuple(random_rule(chance, number) for number in range(rules))
    deliveries = random_deliveries(seed)
    with ExitStack() as stack, small_row_groups():
        plain = Lake(directory / "plain")
        covered: dict[tuple[object, ...], tuple[RuleVersion, ...]] = {}
        for number, delivery in enumerate(deliveries):
            sent = tuple((row.time, row.line) for row in delivery.rows)
            active = covered.setdefault(sent, tuple(one for one in versions if chance.random() < 0.7))
            made = ingest_delivery(plain, delivery, number, book=RuleBook(active))
            plain.all += [replace(one, ingested=number + 1) for one in (*made.segments, *made.parts)]
        once, merged = Lake(copied(directory, "once")), Lake(copied(directory, "merged"))
        once.all = [one for one in plain.all if one.ingested < len(deliveries)]
        merged.all = _compacted(merged, plain.all, versions)
        for lake in (once, plain, merged):
            stack.callback(removed, lake.directory)
            stack.callback(lake.close)
        lakes = {"once": once, "twice": plain, "compacted": merged}
        yield Ruled(versions, {name: lake.engine().engine for name, lake in lakes.items()}, lakes)


def answer(engine: Engine, query: LogqlQuery, versions: Sequence[RuleVersion] = ()) -> tuple[Series | str, int]:
    """Return the values by labels and time, or the kind of the error, and the bytes that points saved."""
    question = LogqlQuestion(query.text, query.start, query.end, query.step, versions=tuple(versions))
    found: Any = engine.answer(OWN, compile_logql(question, query.end), Options(query.end, text=query.text))
    try:
        (group,) = found
    except UserError as error:
        return error.message.partition("'")[0], found.account.bytes_saved
    value, times = group.value, question.steps.times
    series = {
        labels: {int(times[n]): float(value.values[row, n]) for n in np.flatnonzero(value.present[row])}
        for row, labels in enumerate(value.labels)
    }
    return series, found.account.bytes_saved


def _compacted(lake: Lake, segments: Sequence[Segment], versions: Sequence[RuleVersion]) -> list[Segment]:
    """Merge the logs of each hour that the same rules cover, then the points of each rule and hour."""
    every = _merged(lake, [one for one in segments if one.signal == "logs"], RuleBook(tuple(versions)))
    return every + _merged(lake, [one for one in segments if one.signal == "metrics"], NO_RULES)


def _merged(lake: Lake, segments: Sequence[Segment], book: RuleBook) -> list[Segment]:
    address = StoreAddress((lake.directory / "store").as_uri())
    groups: dict[tuple[object, ...], list[Segment]] = {}
    for one in segments:
        groups.setdefault((one.collector, one.time.start_ns // HOUR_NS, one.rule_set), []).append(one)
    found: list[Segment] = []
    for own in groups.values():
        first, ordered = own[0], tuple(sorted(own, key=lambda one: one.ingested))
        work = CompactWork(OWN, first.collector, first.signal, 0, 1, ordered, book.of(first))
        outcome = compact_work(work, address, COMPACT_LIMITS)
        assert not outcome.error, outcome.error
        found += [*outcome.segments, *outcome.parts]
    return found
