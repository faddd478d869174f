"""The rules of one organization together: what holds among them, and what changes from some rules to others.

Comes in: the versions that are current, and the rules that are to be. Goes out: one change for each rule that differs.
What always holds in a catalog: a name is of one rule, a metric is made by one rule, no rule reads its own metric, not
even by way of other rules, and there are `RULES_MAX` rules at most. Rules that are disabled count: they may be enabled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakerunner.model.errors import TooLarge, UserError
from lakerunner.model.metric_rules.metric_rule import MetricRule, RuleVersion

RULES_MAX = 1000  # of one organization
# What may change while the version stays: its points mean the same.
_SAME_POINTS = ("enabled", "description", "max_series")


@dataclass(frozen=True)
class RuleChange:
    """What becomes of one rule. `before` is None for a new rule, `after` for one that is dropped."""

    before: RuleVersion | None
    after: MetricRule | None

    @property
    def name(self) -> str:
        found = self.after or (self.before and self.before.rule)
        return found.name if found else ""

    @property
    def fields(self) -> tuple[str, ...]:
        """Return the names of the fields that differ; () for a rule that is new or dropped."""
        if self.before is None or self.after is None:
            return ()
        old, new = self.before.rule.to_json(), self.after.to_json()
        return tuple(name for name in old if old[name] != new[name])

    @property
    def is_new_version(self) -> bool:
        """Return whether points of the changed rule mean something else than those before."""
        return any(name not in _SAME_POINTS for name in self.fields)

    def to_json(self) -> dict[str, Any]:
        kind = "change" if self.before and self.after else "add" if self.after else "drop"
        changed = {"fields": list(self.fields), "new_version": self.is_new_version} if kind == "change" else {}
        return {"name": self.name, "change": kind, **changed}

    def __str__(self) -> str:
        """Return the line of a difference: `+ name`, `- name`, `~ name v1 -> v2: selector, metric`."""
        if self.before is None or self.after is None:
            return f"{'+' if self.after else '-'} {self.name}"
        version = self.before.version
        versions = f"v{version} -> v{version + 1}" if self.is_new_version else f"v{version}"
        return f"~ {self.name} {versions}: {', '.join(self.fields)}"


def rule_changes(current: Iterable[RuleVersion], rules: Iterable[MetricRule]) -> list[RuleChange]:
    """Return what changes where exactly these rules are to be, by name."""
    before = {one.rule.name: one for one in current}
    after = {rule.name: rule for rule in rules}
    changes = (RuleChange(before.get(name), after.get(name)) for name in sorted(before.keys() | after.keys()))
    return [one for one in changes if one.before is None or one.after is None or one.fields]


def check_together(rules: Sequence[MetricRule]) -> None:
    """Raise UserError if these rules cannot be the rules of one organization, TooLarge if they are too many."""
    if len(rules) > RULES_MAX:
        raise TooLarge(f"{len(rules)} rules are more than an organization may have ({RULES_MAX}): drop some")
    for name, times in Counter(rule.name for rule in rules).items():
        if times > 1:
            raise UserError(f"rule {name!r} appears {times} times: give each rule its own name")
    makers: dict[str, MetricRule] = {}
    for rule in rules:
        other = makers.setdefault(rule.metric, rule)
        if other is not rule:
            raise UserError(
                f"rules {other.name!r} and {rule.name!r} both make metric {rule.metric!r}: give each its own metric"
            )
    for rule in sorted(rules, key=lambda rule: rule.name):
        if loop := list(_loop_from(rule, makers)):
            path = " -> ".join(one.name for one in (*loop, rule))
            raise UserError(f"rules read each other's metrics in a loop: {path}. Let one of them read another metric")


def _loop_from(rule: MetricRule, makers: Mapping[str, MetricRule]) -> Iterator[MetricRule]:
    """Yield the rules from this one along the metrics that they read, if they lead back to it. Each reads one metric,
    which one rule makes, so that there is a single way; a loop further along it is found from the rules in it."""
    path: dict[str, MetricRule] = {}
    at: MetricRule | None = rule
    while at is not None and at.name not in path:
        path[at.name] = at
        at = makers.get(at.source_metric) if at.source_metric else None
    if at is rule:
        yield from path.values()
