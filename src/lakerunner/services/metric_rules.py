"""Check rules before the index stores them.

Comes in: rules that people wrote, one or all of an organization. Goes out: what the index stored, or a UserError that
names the rule and, if its selector is wrong, the position in it. What always holds: a stored rule can be evaluated, and
its metric is none that the organization had sent before there was the rule. A source metric that nobody has sent yet is
fine.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from uuid import UUID

from lakerunner.index.metric_rules import MetricRules
from lakerunner.logql.rule_query import rule_query
from lakerunner.model.errors import UserError
from lakerunner.model.metric_rules.metric_rule import DURATION, EVALUATED, MetricRule, RuleVersion
from lakerunner.model.metric_rules.rule_changes import RuleChange, check_together, rule_changes
from lakerunner.model.time_argument import moment_ns
from lakerunner.promql.rule_matchers import rule_matchers

_LABEL = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_VALUE = "value"  # the one field of a point


class CheckedRules:
    """The rules of organizations; all that people change goes through here."""

    def __init__(self, stored: MetricRules) -> None:
        self._stored = stored

    def put(self, organization: UUID, rule: MetricRule) -> RuleVersion:
        """Set one rule, as the index does."""
        current = self._stored.current(organization)
        others = [one.rule for one in current if one.rule.name != rule.name]
        self._check(organization, current, [*others, rule])
        return self._stored.put(organization, rule)

    def plan(self, organization: UUID, rules: Sequence[MetricRule]) -> list[RuleChange]:
        """Return what `apply` would change, and change nothing."""
        current = self._stored.current(organization)
        self._check(organization, current, rules)
        return rule_changes(current, rules)

    def apply(self, organization: UUID, rules: Sequence[MetricRule]) -> list[RuleChange]:
        """Make these the rules of the organization, or none of them; return what changed."""
        self.plan(organization, rules)
        return self._stored.apply(organization, rules)

    def set_since(self, organization: UUID, name: str, since: str, now_ns: int) -> RuleVersion:
        """Make a rule cover the stored segments since this time, or for this age: `30d`."""
        since_ns = history_since(self._stored.find(organization, name).rule, since, now_ns)
        return self._stored.set_since(organization, name, since_ns)

    def _check(self, organization: UUID, current: Sequence[RuleVersion], rules: Sequence[MetricRule]) -> None:
        check_together(rules)
        stored = {one.rule for one in current}
        for rule in rules:
            if rule not in stored:
                check_rule(rule)
        made = {rule.metric for rule in stored}
        new = {rule.metric: rule.name for rule in rules if rule.metric not in made}
        if metric := self._stored.native_metric(organization, new):
            raise UserError(
                f"rule {new[metric]!r} cannot make metric {metric!r}: it is sent to this organization already, and its "
                "points would be added to those. Choose another name"
            )


def history_since(rule: MetricRule, since: str, now_ns: int) -> int:
    """Return the time, given as such or as an age. UserError if the rule cannot cover stored segments from then on."""
    if rule.signal not in EVALUATED:
        raise UserError(f"rule {rule.name!r} reads {rule.signal}: only rules over {EVALUATED[0]} cover stored data")
    found = moment_ns("since", since, now_ns)
    if found > now_ns:
        raise UserError(f"since {since} is in the future: what comes then is covered without it")
    return found


def check_rule(rule: MetricRule) -> None:
    """Check selector and measure by the language of the rule's signal. UserError with the position in the selector."""
    try:
        if rule.signal == "logs":
            rule_query(rule)
        else:
            rule_matchers(rule)
        _check_measure(rule)
    except UserError as error:
        raise type(error)(f"rule {rule.name!r}: {error.message}", error.position) from error


def _check_measure(rule: MetricRule) -> None:
    measure = rule.measure
    if rule.signal == "logs" and measure.field and not _LABEL.fullmatch(measure.field):
        raise UserError(f"field {measure.field!r} of {measure} is no label name: use letters, digits and '_'")
    if rule.signal != "logs" and measure.conversion:
        raise UserError(f"measure {measure} has a conversion, which only fields of log lines have")
    if rule.signal == "traces" and measure.kind == "histogram" and measure.field != DURATION:
        raise UserError(f"of spans there is no {measure}: use histogram({DURATION})")
    if rule.signal == "metrics" and measure.field != _VALUE:
        raise UserError(f"of points there is no {measure}: use sum({_VALUE})")
