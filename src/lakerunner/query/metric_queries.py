"""Queries about metrics: PromQL, lists, stored samples, cardinality. Each becomes a plan that the engine answers.

Lists (series, labels, metadata, exemplars) are put together from the rows that workers give, sorted, each once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from lakerunner.model.labels import Labels
from lakerunner.model.labels.matcher import Matcher
from lakerunner.model.time import MS_NS
from lakerunner.plan.explain import Explain
from lakerunner.plan.plan import Collect, Leaf, Plan
from lakerunner.promql.language import PROMQL
from lakerunner.promql.operators import FetchSamples, Limits, Selection
from lakerunner.promql.plan import PromqlQuestion, compile_promql, samples_leaf
from lakerunner.query.answer import Answer
from lakerunner.query.cardinality import SeriesCounter
from lakerunner.query.contract.account import Account
from lakerunner.query.engine import Engine
from lakerunner.query.known_segments import expiry_warning
from lakerunner.query.leaf_run import CollectAnswer
from lakerunner.query.metric_answers import Cardinality, CardinalityQuestion, Listing, Selectors, StoredSamples
from lakerunner.query.metrics.list_series import ListSeries, exemplar_order
from lakerunner.query.options import Options
from lakerunner.query.reads import Reads, expiry_notes
from lakerunner.query.series_answer import SeriesAnswer, guarded_of, raw_read
from lakerunner.series.evaluation.pieces import ListingRows, distinct_samples
from lakerunner.series.notes import Notes
from lakerunner.series.values import Samples

_METADATA_MS = 24 * 3_600_000  # metadata of the last day
_EVERYTHING: tuple[tuple[Matcher, ...], ...] = ((),)


class MetricQueries:
    """A MetricsLake (query/metric_answers.py). Safe to use from many threads. `delayed_names`: as Prometheus' feature
    promql-delayed-name-removal."""

    def __init__(self, engine: Engine, limits: Limits = Limits(), *, delayed_names: bool = False) -> None:  # noqa: B008
        self.engine = engine
        self.limits = limits
        self.delayed_names = delayed_names

    def promql(self, organization: UUID, question: PromqlQuestion) -> SeriesAnswer:
        """Return at once. UserError for an invalid query; later errors are raised by the answer."""
        plan = compile_promql(question, self.limits, delayed_names=self.delayed_names)
        answer: SeriesAnswer = self.engine.answer(organization, plan, _options(question))
        return answer

    def explain(self, organization: UUID, question: PromqlQuestion, how: Explain) -> Answer:
        """Return the lines of EXPLAIN."""
        plan = compile_promql(question, self.limits, delayed_names=self.delayed_names)
        answer: Answer = self.engine.answer(organization, plan, _options(question, how))
        return answer

    def series(
        self, organization: UUID, selectors: Selectors, start_ms: int, end_ms: int, *, limit: int, now_ns: int
    ) -> Listing:
        lists = self._lists(organization, start_ms, end_ms, now_ns)
        return lists.sorted("series", selectors, self._most(limit), _labels)

    def label_names(
        self, organization: UUID, selectors: Selectors, start_ms: int, end_ms: int, *, limit: int, now_ns: int
    ) -> Listing:
        lists = self._lists(organization, start_ms, end_ms, now_ns)
        return lists.sorted("label_names", selectors, self._most(limit), str)

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
        lists = self._lists(organization, start_ms, end_ms, now_ns)
        return lists.sorted("label_values", selectors, self._most(limit), str, label)

    def metadata(
        self, organization: UUID, *, metric: str | None, limit: int, limit_per_metric: int, now_ns: int
    ) -> Listing:
        lists = self._lists(organization, now_ns // MS_NS - _METADATA_MS, now_ns // MS_NS, now_ns)
        return lists.metadata(metric, self._most(limit), limit_per_metric)

    def exemplars(self, organization: UUID, selectors: Selectors, start_ms: int, end_ms: int, now_ns: int) -> Listing:
        return self._lists(organization, start_ms, end_ms, now_ns).exemplars(selectors, self.limits.max_series)

    def samples(
        self, organization: UUID, selectors: Selectors, start_ms: int, end_ms: int, now_ns: int
    ) -> StoredSamples:
        operators = [FetchSamples(Selection(matchers, start_ms - 1, end_ms), self.limits) for matchers in selectors]
        leaves = tuple(leaf for one in operators if (leaf := samples_leaf(one)))
        collected: CollectAnswer = self.engine.answer(organization, Plan(leaves, Collect()), Options(now_ns))
        found: list[Samples] = []
        reads = Reads()
        for one in collected:
            operator = one.leaf.operator
            if not isinstance(operator, FetchSamples):
                raise TypeError(f"operator {operator.name} gives no samples")
            reads.add(raw_read(one.leaf, guarded_of(one.leaf), one.pick))
            found.append(operator.fold(one.pieces, Notes(PROMQL.words)))
            self.limits.check(sum(map(len, found)), sum(len(samples.times) for samples in found))
        return StoredSamples(distinct_samples(found), expiry_notes(reads.all()), collected.account)

    def cardinality(self, organization: UUID, question: CardinalityQuestion) -> Cardinality:
        return SeriesCounter(self.engine, organization, question).answer()

    def _lists(self, organization: UUID, start_ms: int, end_ms: int, now_ns: int) -> SeriesLister:
        return SeriesLister(self.engine, organization, start_ms, end_ms, now_ns)

    def _most(self, limit: int) -> int:
        return min(limit, self.limits.max_series) if limit else self.limits.max_series


def _options(question: PromqlQuestion, explain: Explain = Explain.NO) -> Options:
    return Options(question.now_ns, question.partial, question.streamed, explain, question.text, engine=question.engine)


@dataclass
class SeriesLister:
    """Answers one request, of series at these times in ms, both included; `account` covers everything that it read."""

    engine: Engine
    organization: UUID
    start_ms: int
    end_ms: int
    now_ns: int
    account: Account = field(default_factory=Account)

    def metadata(self, metric: str | None, limit: int, limit_per_metric: int) -> Listing:
        rows = self._rows("metadata", _EVERYTHING, 1_000_000)
        families: dict[str, list[tuple[str, str, str, str]]] = {}
        for name, type_, unit, help_ in sorted(set(map(tuple, rows))):
            if metric is None or metric == name:
                families.setdefault(name, []).append((name, type_, help_, unit))
        stated = ([row for row in family if row[1] != "unknown"] or family for family in families.values())
        kept = list(stated)[:limit]
        per_metric = limit_per_metric or None
        found = [row for family in kept for row in family[:per_metric]]
        return Listing(found, len(families) > limit, self.account)

    def exemplars(self, selectors: Selectors, limit: int) -> Listing:
        found: dict[Labels, dict[Any, dict[str, Any]]] = {}
        for labels, exemplars in self._rows("exemplars", selectors, limit):
            own = found.setdefault(_labels(labels), {})
            for one, value, time in exemplars:
                named = _labels(one)
                own[named, value, time] = {"labels": named, "value": float(value), "timestamp": time}
        rows = [(labels, sorted(own.values(), key=_in_order)) for labels, own in sorted(found.items())]
        return Listing(rows[:limit], len(rows) > limit, self.account)

    def sorted(
        self, what: Any, selectors: Selectors, limit: int, read: Callable[[Any], Any], label: str = ""
    ) -> Listing:
        rows = sorted({read(row) for row in self._rows(what, selectors or _EVERYTHING, limit, label)})
        return Listing(rows[:limit], len(rows) > limit, self.account)

    def _rows(self, what: Any, selectors: Selectors, limit: int, label: str = "") -> Iterator[Any]:
        times = self.start_ms - 1, max(self.end_ms, self.start_ms - 1)
        selections = [Selection(matchers, *times) for matchers in selectors]
        scanned = [(one, scan) for one in selections if (scan := one.scan)]
        leaves = tuple(Leaf(scan, ListSeries(what, one, limit, label)) for one, scan in scanned)
        collected: CollectAnswer = self.engine.answer(self.organization, Plan(leaves, Collect()), Options(self.now_ns))
        warnings: set[str] = set()
        for found in collected:
            scan = found.leaf.scan
            warnings |= expiry_warning(scan.signal, scan.time, found.pick.expiry)
            for piece in found.pieces:
                if isinstance(piece.value, ListingRows):
                    yield from piece.value.rows
        self.account += replace(collected.account, warnings=frozenset(warnings))


def _labels(row: Iterable[Sequence[str]]) -> Labels:
    return tuple((name, value) for name, value in row)


def _in_order(exemplar: dict[str, Any]) -> Any:
    return exemplar_order(exemplar["timestamp"], exemplar["labels"], exemplar["value"])
