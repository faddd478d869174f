"""A small lake of metrics in memory: PromQL by the real evaluation over samples given by the test, behind the contract
that the API speaks to; and answers that are slow, partial or fail on their way."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from lakerunner.api.app import build_app
from lakerunner.api.auth import Authenticator
from lakerunner.api.limits import Capacity, QueryLimits
from lakerunner.api.native.metrics_api import NativeMetricsApi
from lakerunner.api.prometheus.prometheus_api import MetricsLimits, PrometheusApi
from lakerunner.api.query_service import QueryService
from lakerunner.api.server import HttpServer, bind
from lakerunner.model.errors import LakerunnerError
from lakerunner.model.labels import NAME, Labels, labels_of, value_of
from lakerunner.model.labels.matcher import Matcher
from lakerunner.model.organization import DEFAULT_ORGANIZATION, EVERY_ROLE, Caller, Organization
from lakerunner.model.regex import compile_regex
from lakerunner.model.tier import RAW, window_end
from lakerunner.plan.explain import Explain, plan_lines
from lakerunner.promql.functions import FUNCTIONS
from lakerunner.promql.language import PROMQL
from lakerunner.promql.operators import Limits
from lakerunner.promql.parse import parse
from lakerunner.promql.plan import PromqlQuestion, compile_promql
from lakerunner.promql.resolve import resolve
from lakerunner.query.answer import FixedAnswer
from lakerunner.query.contract.account import Account
from lakerunner.query.metric_answers import (
    Cardinality,
    CardinalityQuestion,
    LabelCount,
    Listing,
    MetricCount,
    MetricsLake,
    StoredSamples,
)
from lakerunner.query.reads import Read
from lakerunner.query.series_answer import StepGroup
from lakerunner.series.evaluation.evaluate import evaluate
from lakerunner.series.evaluation.pieces import distinct_samples
from lakerunner.series.expression import Kind
from lakerunner.series.function import kind_of
from lakerunner.series.histograms.histogram import Histogram
from lakerunner.series.notes import Note
from lakerunner.series.values import Samples, Steps, Vector, Windows, sort_by_labels

Points = Sequence[tuple[int, float | Histogram]]
Selectors = Sequence[tuple[Matcher, ...]]


@dataclass
class MemoryLake:
    """`series` are labels and points (ms, value), by organization. Ranges are answered in groups of `group_steps`."""

    series_of: dict[UUID, dict[Labels, Points]] = field(default_factory=dict)
    types: list[tuple[str, str, str, str]] = field(default_factory=list)
    exemplars_of: dict[Labels, list[dict[str, Any]]] = field(default_factory=dict)
    group_steps: int = 1 << 40
    account: Account = field(default_factory=Account)
    asked: list[PromqlQuestion] = field(default_factory=list)

    def add(self, labels: Mapping[str, str], points: Points, organization: UUID = DEFAULT_ORGANIZATION.id) -> None:
        self.series_of.setdefault(organization, {})[labels_of(labels)] = points

    def promql(self, organization: UUID, question: PromqlQuestion) -> Any:
        self.asked.append(question)
        expression = resolve(parse(question.text), question.steps, question.instant)
        kind = kind_of(expression, FUNCTIONS)
        question.check(kind)
        return MemoryAnswer(self, organization, question, kind, account=self.account)

    def explain(self, _organization: UUID, question: PromqlQuestion, _how: Explain) -> FixedAnswer:
        """The plan alone: there are no segments to pick."""
        lines = plan_lines(compile_promql(question, Limits()))
        batch = pa.record_batch([pa.array(lines)], ["plan"])
        return FixedAnswer(batch.schema, iter([batch]), self.account)

    def series(
        self, organization: UUID, selectors: Selectors, start_ms: int, end_ms: int, *, limit: int, now_ns: int
    ) -> Listing:
        return self._listing(self._chosen(organization, selectors, start_ms, end_ms), limit)

    def label_names(
        self, organization: UUID, selectors: Selectors, start_ms: int, end_ms: int, *, limit: int, now_ns: int
    ) -> Listing:
        chosen = self._chosen(organization, selectors, start_ms, end_ms)
        return self._listing(sorted({name for labels in chosen for name, _ in labels}), limit)

    def label_values(
        self,
        organization: UUID,
        label: str,
        selectors: Selectors,
        start_ms: int,
        end_ms: int,
        *,
        limit: int,
        now_ns: int,
    ) -> Listing:
        chosen = self._chosen(organization, selectors, start_ms, end_ms)
        return self._listing(sorted({value_of(labels, label) for labels in chosen} - {""}), limit)

    def metadata(
        self, organization: UUID, *, metric: str | None, limit: int, limit_per_metric: int, now_ns: int
    ) -> Listing:
        return self._listing([row for row in self.types if metric in (None, row[0])], limit)

    def exemplars(self, organization: UUID, selectors: Selectors, start_ms: int, end_ms: int, now_ns: int) -> Listing:
        chosen = self._chosen(organization, selectors, start_ms, end_ms)
        return self._listing([(one, self.exemplars_of[one]) for one in chosen if one in self.exemplars_of], 1000)

    def samples(
        self, organization: UUID, selectors: Selectors, start_ms: int, end_ms: int, now_ns: int
    ) -> StoredSamples:
        found = [self.select(organization, one, start_ms - 1, end_ms) for one in selectors]
        return StoredSamples(distinct_samples(found), (), self.account)

    def cardinality(self, organization: UUID, question: CardinalityQuestion) -> Cardinality:
        """Exact, of one metric by its Prometheus name; as from points."""
        start, end = question.reach
        ends = range(start + question.step_ms, end + 1, question.step_ms)
        active: dict[str, dict[int, set[Labels]]] = {}
        for labels, points in self.series_of.get(organization, {}).items():
            for time, _ in points:
                if start < time <= end and question.metric in ("", value_of(labels, NAME)):
                    windows = active.setdefault(value_of(labels, NAME), {one: set() for one in ends})
                    windows[window_end(time, question.step_ms)].add(labels)
        counts = [
            MetricCount(name, len(set().union(*found.values())), tuple(map(len, found.values())), len(found[ends[-1]]))
            for name, found in active.items()
        ]
        counts.sort(key=lambda one: (-one.series, one.metric))
        values: dict[str, set[str]] = {}
        for labels in set().union(*(own for found in active.values() for own in found.values())):
            for name, value in labels:
                values.setdefault(name, set()).add(value)
        labelled = [LabelCount("series", name, len(own), True) for name, own in sorted(values.items()) if name != NAME]
        return Cardinality(
            tuple((one, (RAW,)) for one in ends),
            tuple(counts[: question.limit]),
            tuple(labelled) if question.labels else (),
            len(counts) > question.limit,
            self.account,
        )

    def select(self, organization: UUID, matchers: tuple[Matcher, ...], start: int, end: int) -> Samples:
        stored = self.series_of.get(organization, {})
        labels = sorted(one for one in stored if _meets(one, matchers))
        points = [[point for point in stored[one] if start < point[0] <= end] for one in labels]
        flat = [point for one in points for point in one]
        histograms = np.array([None if isinstance(v, float | int) else v for _, v in flat], object)
        return Samples(
            labels,
            np.cumsum([0, *map(len, points)]),
            np.array([time for time, _ in flat], np.int64),
            np.array([v if isinstance(v, float | int) else 0.0 for _, v in flat], float),
            histograms if any(one is not None for one in histograms) else None,
        )

    def _chosen(self, organization: UUID, selectors: Selectors, start_ms: int, end_ms: int) -> list[Labels]:
        return sorted(
            labels
            for labels, points in self.series_of.get(organization, {}).items()
            if (not selectors or any(_meets(labels, one) for one in selectors))
            and any(start_ms <= time <= end_ms for time, _ in points)
        )

    def _listing(self, rows: list[Any], limit: int) -> Listing:
        return Listing(rows[:limit], len(rows) > limit, self.account)


@dataclass
class MemoryAnswer:
    lake: MemoryLake
    organization: UUID
    question: PromqlQuestion
    kind: Kind
    notes: tuple[Note, ...] = ()
    account: Account = field(default_factory=Account)
    reads: tuple[Read, ...] = ()

    def __iter__(self) -> Iterator[StepGroup]:
        question, steps = self.question, self.question.steps
        length = self.lake.group_steps * steps.step
        for start in range(steps.start, steps.last + 1, length):
            part = Steps(start, min(start + length - steps.step, steps.last), steps.step)
            expression = resolve(parse(question.text), steps, question.instant)
            source = _Source(self.lake, self.organization)
            value, notes = evaluate(expression, part, source, PROMQL, lookback=question.lookback_ms)
            self.notes = tuple(dict.fromkeys([*self.notes, *notes.all()]))
            if isinstance(value, Vector) and not question.instant:
                value = sort_by_labels(value)
            yield StepGroup(part, _samples(value) if isinstance(value, Windows) else value)

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class _Source:
    lake: MemoryLake
    organization: UUID

    def select(self, matchers: tuple[Matcher, ...], start: int, end: int) -> Samples:
        return self.lake.select(self.organization, matchers, start, end)


def _samples(windows: Windows) -> Samples:
    """Those of the one window of each series."""
    kept = np.concatenate([np.arange(a, b) for a, b in zip(windows.first[:, 0], windows.last[:, 0], strict=True)])
    samples, kept = windows.samples, kept.astype(np.int64)
    counts = windows.last[:, 0] - windows.first[:, 0]
    return Samples(
        samples.labels,
        np.concatenate([[0], np.cumsum(counts)]),
        samples.times[kept],
        samples.values[kept],
        None if samples.histograms is None else samples.histograms[kept],
    )


def _meets(labels: Labels, matchers: Sequence[Matcher]) -> bool:
    def met(matcher: Matcher) -> bool:
        value = value_of(labels, matcher.name)
        if matcher.op in ("=", "!="):
            return (value == matcher.value) == (matcher.op == "=")
        return compile_regex(matcher.value).matches(value) == (matcher.op == "=~")

    return all(map(met, matchers))


@dataclass
class ScriptedMetrics:
    """An answer that goes through its script: a group, an account from here on, an error, or `wait` until it is closed
    or `go` is set."""

    script: list[StepGroup | Account | Exception | str]
    kind: Kind = Kind.VECTOR
    notes: tuple[Note, ...] = ()
    account: Account = field(default_factory=Account)
    reads: tuple[Read, ...] = ()
    closed: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)
    waits: threading.Event = field(default_factory=threading.Event)

    def __iter__(self) -> Iterator[StepGroup]:
        for step in self.script:
            match step:
                case StepGroup():
                    yield step
                case Account():
                    self.account = step
                case Exception():
                    raise step
                case "wait":
                    self.waits.set()
                    while not (self.closed.is_set() or self.go.wait(0.01)):
                        pass
                    self.go.clear()

    def close(self) -> None:
        self.closed.set()


@dataclass
class ScriptedLake(MemoryLake):
    """Gives the answer, or raises the error, that the query's text names; lists raise `listing`."""

    answers: dict[str, ScriptedMetrics | LakerunnerError] = field(default_factory=dict)
    listing: Exception | None = None

    def promql(self, organization: UUID, question: PromqlQuestion) -> Any:
        self.asked.append(question)
        answer = self.answers[question.text]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _listing(self, rows: list[Any], limit: int) -> Listing:
        if self.listing is not None:
            raise self.listing
        return super()._listing(rows, limit)


@contextmanager
def metrics_server(
    lake: MetricsLake,
    now_ns: int,
    *,
    keys: Mapping[str, Organization] | None = None,
    most: MetricsLimits = MetricsLimits(),  # noqa: B008 a frozen value
) -> Iterator[str]:
    """The base URL of an API over this lake. With `keys`, each opens its organization and nothing goes without one."""
    callers = {key: Caller(one, key, EVERY_ROLE) for key, one in (keys or {}).items()}
    who = Authenticator(callers.get, None if keys else DEFAULT_ORGANIZATION)
    limits = QueryLimits(Capacity(4, 1000.0, 4, queue_seconds=10.0), lambda: 0.0)
    service = QueryService(who, limits, lambda: now_ns)
    prometheus, native = PrometheusApi(lake, service, most), NativeMetricsApi(lake, service)
    server = HttpServer(build_app(prometheus.routes(), native.routes()), bind("127.0.0.1", 0), lambda reason: None)
    server.start()
    try:
        yield server.url
    finally:
        server.stop()


def sample_lake(now_ms: int) -> MemoryLake:
    """Ten minutes of two jobs, every 15 s, up to now."""
    lake = MemoryLake()
    times = range(now_ms - 600_000, now_ms + 1, 15_000)
    for job, rate in (("cart", 2.0), ("pay", 0.5)):
        for code in ("200", "500"):
            count = rate * (1 if code == "200" else 0.1)
            labels = {NAME: "http_requests_total", "job": job, "instance": f"{job}-1:80", "code": code}
            lake.add(labels, [(time, n * 15 * count) for n, time in enumerate(times)])
        lake.add({NAME: "up", "job": job, "instance": f"{job}-1:80"}, [(time, 1.0) for time in times])
    lake.add({NAME: "http.size", "job": "cart", "k8s.pod": "a"}, [(time, 0.1 * n) for n, time in enumerate(times)])
    lake.types = [
        ("http_requests_total", "counter", "Requests.", ""),
        ("up", "gauge", "Whether it lives.", ""),
    ]
    return lake


def with_groups(lake: MemoryLake, steps: int) -> MemoryLake:
    return replace(lake, group_steps=steps)
