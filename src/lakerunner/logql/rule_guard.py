"""Whether the points of a rule give what a range aggregation over lines gives: the written guard, clause by clause.

Comes in: a range aggregation of a query with the sum around it, its windows, and the query of a rule. Goes out: why the
rule cannot stand for it, "" if it can. What always holds: if no clause objects, the answer from points and the answer
from lines are the same (docs/formats/materialization.md proves it clause by clause). A clause may object to more than
it must, never to less.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from lakerunner.logql.metric_expression import RangeLeaf
from lakerunner.logql.rule_query import RuleQuery
from lakerunner.logql.stages.label_filter import names_of_test
from lakerunner.logql.stages.line_labels import ERROR, ERROR_DETAILS
from lakerunner.logql.text.printer import stage_text
from lakerunner.logql.text.syntax import LabelFilter, Stage
from lakerunner.model.labels.matcher import LabelTest, Matcher, Matchers, matches_empty
from lakerunner.model.metric_rules.metric_rule import BUCKET_MS
from lakerunner.model.streams.stream_rules import StreamRules
from lakerunner.model.time import MS_NS
from lakerunner.series.expression import NOWHERE
from lakerunner.series.values import Steps

BUCKET_NS = BUCKET_MS * MS_NS
_SERVICE_NAME = "service_name"
# The measure of each range aggregation without and with `unwrap`, that adds up what its windows hold.
_MEASURES = {
    "count_over_time": "count",
    "rate": "count",
    "bytes_over_time": "bytes",
    "bytes_rate": "bytes",
}
_UNWRAPPED = {"sum_over_time": "sum", "rate": "sum"}


@dataclass(frozen=True)
class Wanted:
    """A range aggregation of a query, at its steps; `rules` say what a stream is."""

    leaf: RangeLeaf
    steps: Steps
    rules: StreamRules

    @property
    def matchers(self) -> Matchers:
        return self.leaf.aggregation.lines.pipeline.matchers

    @property
    def stages(self) -> tuple[Stage, ...]:
        return tuple(plain(one) for one in self.leaf.aggregation.lines.pipeline.stages)


@dataclass(frozen=True)
class Difference:
    """What a query asks beyond a rule: of streams, and of labels."""

    matchers: Matchers
    stages: tuple[Stage, ...]


def plain(stage: Stage) -> Stage:
    """Return the stage without its place in a text."""
    return replace(stage, span=NOWHERE)


def refusal(wanted: Wanted, rule: RuleQuery, clauses: Mapping[str, Clause] | None = None) -> str:
    """Return the first clause that objects, and why; "" if none does."""
    for name, clause in (CLAUSES if clauses is None else clauses).items():
        if reason := clause(wanted, rule):
            return f"{name}: {reason}"
    return ""


def difference(wanted: Wanted, rule: RuleQuery) -> Difference:
    """Return what is left to be tested on the labels of the rule's points, if no clause objects."""
    own = rule.aggregation.lines.pipeline
    stages = wanted.stages[len(own.stages) :]
    return Difference(tuple(one for one in wanted.matchers if one not in own.matchers), stages)


def _measure(wanted: Wanted, rule: RuleQuery) -> str:
    """The function adds up what the rule measures."""
    asked, made = wanted.leaf.aggregation, rule.aggregation
    unwrap, own = asked.lines.unwrap, made.lines.unwrap
    measures = _MEASURES if unwrap is None else _UNWRAPPED
    measured = "sum" if own else _MEASURES[made.op]
    if measures.get(asked.op) != measured:
        return f"{asked.op} is not made of {made.op}"
    if unwrap is not None and own is not None:
        if (unwrap.label, unwrap.conversion) != (own.label, own.conversion):
            return f"it measures {own.label}, not {unwrap.label}"
        if unwrap.filters:
            return "it has no filters behind unwrap"
    return ""


def _selector(wanted: Wanted, rule: RuleQuery) -> str:
    """Every line of the query is one of the rule's: each matcher of the rule is implied by the query's."""
    for own in rule.aggregation.lines.pipeline.matchers:
        if not any(_implies(one, own) for one in wanted.matchers):
            return f"the query may select streams without {own.name}{own.op}{own.value!r}"
    return ""


def _implies(given: Matcher, own: Matcher) -> bool:
    if given == own:
        return True
    return given.name == own.name and given.op == "=" and LabelTest(own)(given.value)


def _streams(wanted: Wanted, rule: RuleQuery) -> str:
    """What the query asks of streams beyond the rule is in the points: the label is a dimension, and every stream of
    the rule has it. Otherwise the dimension may be of metadata or of the line, which a selector does not see."""
    own = rule.aggregation.lines.pipeline.matchers
    for one in difference(wanted, rule).matchers:
        if one.name not in rule.dimensions.labels:
            return f"it does not keep {one.name}"
        always = one.name == _SERVICE_NAME and bool(wanted.rules.service_labels)
        if not always and not any(other.name == one.name and not matches_empty(other) for other in own):
            return f"not every stream of the rule has {one.name}"
    return ""


def _stages(wanted: Wanted, rule: RuleQuery) -> str:
    """The query has the rule's stages, and behind them only tests of dimensions."""
    own = tuple(plain(one) for one in rule.aggregation.lines.pipeline.stages)
    asked = wanted.stages
    for place, stage in enumerate(own):
        if place >= len(asked) or asked[place] != stage:
            return f"the query lacks {stage_text(stage)}"
    for stage in asked[len(own) :]:
        if not isinstance(stage, LabelFilter):
            return f"it lacks {stage_text(stage)}"
        for name in names_of_test(stage.test):
            if name not in rule.dimensions.labels or name in (ERROR, ERROR_DETAILS):
                return f"it does not keep {name}"
    return ""


def _grouping(wanted: Wanted, rule: RuleQuery) -> str:
    """The query sums over all labels that the rule does not keep."""
    asked = wanted.leaf.aggregation.grouping or wanted.leaf.pushed
    if asked is None:
        return "the query does not sum over labels that it does not keep"
    if asked.without:
        return "without may keep any label"
    for name in asked.labels:
        if name not in rule.dimensions.labels:
            return f"it does not keep {name}"
    return ""


def _windows(wanted: Wanted, _rule: RuleQuery) -> str:
    """Windows are made of whole buckets; of one window, what is left at both ends is read from lines."""
    lines = wanted.leaf.aggregation.lines
    if wanted.steps.start == wanted.steps.last:
        start, end = window(wanted)
        return "" if whole_buckets(start, end)[0] < whole_buckets(start, end)[1] else "the window has no whole bucket"
    first = wanted.steps.start - lines.offset
    for what, length in (("range", lines.range), ("step", wanted.steps.step), ("time of the first step", first)):
        if length % BUCKET_NS:
            return f"the {what} is no multiple of {BUCKET_MS // 1000} s"
    return ""


def window(wanted: Wanted) -> tuple[int, int]:
    """Return (start, end] of all windows together, in ns."""
    lines = wanted.leaf.aggregation.lines
    return wanted.steps.start - lines.offset - lines.range, wanted.steps.last - lines.offset


def whole_buckets(start: int, end: int) -> tuple[int, int]:
    """Return (start, end] of the whole buckets in it."""
    return -(-start // BUCKET_NS) * BUCKET_NS, end // BUCKET_NS * BUCKET_NS


Clause = Callable[[Wanted, RuleQuery], str]
CLAUSES: Mapping[str, Clause] = {
    "measure": _measure,
    "selector": _selector,
    "streams": _streams,
    "stages": _stages,
    "grouping": _grouping,
    "windows": _windows,
}
