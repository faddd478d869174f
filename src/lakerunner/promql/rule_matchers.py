"""The matchers of a rule over spans or points, whose selector is `{name="value"}` alone.

Comes in: a rule (model/metric_rules/). Goes out: its matchers; of points those beside the name of the source metric,
which the rule states itself. What always holds: every regular expression compiles, and a refusal has the position in
the selector.
"""

from __future__ import annotations

from lakerunner.model.errors import UserError
from lakerunner.model.labels import NAME
from lakerunner.model.labels.matcher import Matchers
from lakerunner.model.labels.selector import PROMQL, TAGS
from lakerunner.model.metric_rules.metric_rule import MetricRule
from lakerunner.promql.cursor import Cursor
from lakerunner.promql.lexer import END
from lakerunner.promql.parse import braces

MATCHERS_MAX = 64
_GRAMMARS = {"metrics": PROMQL, "traces": TAGS}


def rule_matchers(rule: MetricRule) -> Matchers:
    """Return the matchers; none for {}. UserError, with its position, for a selector that is anything else."""
    grammar = _GRAMMARS[rule.signal]
    cursor = Cursor(rule.selector, grammar)
    with cursor.inside("a rule's selector", 'matchers such as {name="value"}'):
        if cursor.kind != "{":
            raise cursor.unexpected()
        matchers, _ = braces(cursor, grammar)
        if cursor.kind != END:
            raise cursor.unexpected()
    if any(matcher.name == NAME for matcher in matchers):
        raise UserError("a rule's selector names no metric: that of a rule over metrics is its source_metric")
    if len(matchers) > MATCHERS_MAX:
        raise UserError(f"a rule's selector has {len(matchers)} matchers: use {MATCHERS_MAX} at most")
    return matchers
