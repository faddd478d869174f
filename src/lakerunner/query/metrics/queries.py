"""Questions about metrics: PromQL, lists, stored samples, cardinality. Each becomes a plan that the engine answers."""

from __future__ import annotations

from uuid import UUID

from lakerunner.model.time import MS_NS
from lakerunner.plan.explain import Explain
from lakerunner.plan.plan import Collect, Plan
from lakerunner.promql.language import PROMQL
from lakerunner.promql.operators import FetchSamples, Limits
from lakerunner.promql.plan import PromqlQuestion, compile_promql, samples_leaf
from lakerunner.promql.sample_range import Selection
from lakerunner.query.answer import Answer
from lakerunner.query.collected import Collected
from lakerunner.query.engine import Engine
from lakerunner.query.metrics.answer import Cardinality, CardinalityQuestion, Listing, StoredSamples
from lakerunner.query.metrics.cardinality import Counting
from lakerunner.query.metrics.lists import ListRequest, Lists, Selectors
from lakerunner.query.metrics.reads import Reads
from lakerunner.query.options import Options
from lakerunner.query.series_answer import SeriesAnswer, expired_notes, guarded_of, raw_read
from lakerunner.series.evaluation.joined import distinct_samples
from lakerunner.series.notes import Notes
from lakerunner.series.values import Samples

_METADATA_MS = 24 * 3_600_000  # what was said of metrics in the last day


class MetricQueries:
    """A MetricsLake (query/metrics/answer.py). Safe to use from many threads. `delayed_names`: as Prometheus' feature
    promql-delayed-name-removal."""

    def __init__(self, engine: Engine, limits: Limits = Limits(), *, delayed_names: bool = False) -> None:  # noqa: B008
        self.engine = engine
        self.limits = limits
        self.delayed_names = delayed_names

    def promql(self, organization: UUID, question: PromqlQuestion) -> SeriesAnswer:
        """UserError at once for a text that cannot be asked; what goes wrong later is the answer's to raise."""
        answer: SeriesAnswer = self.engine.answer(organization, self._plan(question), _options(question))
        return answer

    def explain(self, organization: UUID, question: PromqlQuestion, how: Explain) -> Answer:
        """Return the lines of EXPLAIN."""
        answer: Answer = self.engine.answer(organization, self._plan(question), _options(question, how))
        return answer

    def series(
        self, organization: UUID, selectors: Selectors, start_ms: int, end_ms: int, *, limit: int, now_ns: int
    ) -> Listing:
        return self._lists(organization, start_ms, end_ms, now_ns).series(selectors, self._most(limit))

    def label_names(
        self, organization: UUID, selectors: Selectors, start_ms: int, end_ms: int, *, limit: int, now_ns: int
    ) -> Listing:
        return self._lists(organization, start_ms, end_ms, now_ns).label_names(selectors, self._most(limit))

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
        return self._lists(organization, start_ms, end_ms, now_ns).label_values(label, selectors, self._most(limit))

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
        collected: Collected = self.engine.answer(organization, Plan(leaves, Collect()), Options(now_ns))
        found: list[Samples] = []
        reads = Reads()
        for one in collected:
            operator = one.leaf.operator
            if not isinstance(operator, FetchSamples):
                raise TypeError(f"operator {operator.name} gives no samples")
            reads.add(raw_read(one.leaf, guarded_of(one.leaf), one.pick))
            found.append(operator.fold(one.pieces, Notes(PROMQL.words)))
            self.limits.check(sum(map(len, found)), sum(len(samples.times) for samples in found))
        return StoredSamples(distinct_samples(found), expired_notes(reads.all()), collected.account)

    def cardinality(self, organization: UUID, question: CardinalityQuestion) -> Cardinality:
        return Counting(self.engine, organization, question).answer()

    def _plan(self, question: PromqlQuestion) -> Plan:
        return compile_promql(question, self.limits, delayed_names=self.delayed_names)

    def _lists(self, organization: UUID, start_ms: int, end_ms: int, now_ns: int) -> Lists:
        return Lists(self.engine, ListRequest(organization, start_ms, end_ms, now_ns))

    def _most(self, limit: int) -> int:
        return min(limit, self.limits.max_series) if limit else self.limits.max_series


def _options(question: PromqlQuestion, explain: Explain = Explain.NO) -> Options:
    return Options(question.now_ns, question.partial, question.streamed, explain, question.text)
