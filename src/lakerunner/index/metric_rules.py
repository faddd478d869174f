"""The catalog of rules: for each organization its rules that make metrics, and the versions they had.

Comes in: rules that their languages have checked (services/metric_rules.py). Goes out: versions, with the number by
which segments and collectors know them. What always holds: an organization has one current version of a rule, and its
rules keep the laws of model/metric_rules/rule_changes.py, also if several processes change them, because all changes of
an organization wait for each other; its version numbers only grow, also when a rule was dropped.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from lakerunner.index.database import Database, Transaction
from lakerunner.model.errors import NotFound
from lakerunner.model.metric_rules.metric_rule import MetricRule, RuleVersion
from lakerunner.model.metric_rules.rule_changes import RuleChange, check_together, rule_changes
from lakerunner.model.organization import RULE_PREFIX
from lakerunner.model.segment import INCOMPLETE, digest64

_LONGEST_REASON = 2000


class MetricRules:
    def __init__(self, database: Database) -> None:
        self._database = database

    def current(self, organization: UUID) -> list[RuleVersion]:
        """Return all rules by name, also those that are disabled or paused."""
        with self._database.transaction() as transaction:
            return _current(transaction, organization)

    def find(self, organization: UUID, name: str) -> RuleVersion:
        with self._database.transaction() as transaction:
            return _find(transaction, organization, name)

    def active(self, organization: UUID, signal: str) -> tuple[RuleVersion, ...]:
        """Return the rules that make points of this signal's rows, by number: not disabled, not paused."""
        rows = self._database.rows("metric_rules.active", {"organization": organization, "signal": signal})
        return tuple(_version(*row) for row in rows)

    def put(self, organization: UUID, rule: MetricRule) -> RuleVersion:
        """Set one rule: a new one, another version of it, or the same version with another limit or description. The
        same rule again changes nothing. UserError or TooLarge if it does not fit to the others."""
        with self._change(organization) as transaction:
            current = _current(transaction, organization)
            others = [one.rule for one in current if one.rule.name != rule.name]
            _replace(transaction, organization, current, [*others, rule])
            return _find(transaction, organization, rule.name)

    def apply(self, organization: UUID, rules: Sequence[MetricRule]) -> list[RuleChange]:
        """Make these the rules of the organization, dropping all others, or none of them; return what changed."""
        with self._change(organization) as transaction:
            return _replace(transaction, organization, _current(transaction, organization), rules)

    def drop(self, organization: UUID, name: str) -> None:
        with self._change(organization) as transaction:
            ended = transaction.run("metric_rules.end", {"organization": organization, "names": [name]})
            if not ended:
                raise _not_found(name)

    def set_enabled(self, organization: UUID, name: str, enabled: bool) -> RuleVersion:
        """Enable or disable a rule. One that is enabled goes on if it was paused."""
        values = {"organization": organization, "name": name, "enabled": enabled}
        with self._change(organization) as transaction:
            transaction.run("metric_rules.enable", values)
            return _find(transaction, organization, name)

    def set_since(self, organization: UUID, name: str, since_ns: int) -> RuleVersion:
        """Make a rule cover the stored segments with rows from this time on, and none that end before it."""
        values = {"organization": organization, "name": name, "since_ns": since_ns}
        with self._change(organization) as transaction:
            transaction.run("metric_rules.set_since", values)
            return _find(transaction, organization, name)

    def pause(self, version_id: int, reason: str) -> None:
        """Stop a version from making points until it is resumed, enabled or changed. Ended and paused ones stay."""
        self._database.run("metric_rules.pause", {"id": version_id, "reason": reason[:_LONGEST_REASON]})

    def resume(self, version_id: int) -> None:
        self._database.run("metric_rules.resume", {"id": version_id})

    def renew(self, organization: UUID, ids: Collection[int]) -> list[RuleVersion]:
        """End those of these versions that are current, and begin new versions of the same rules: what the old ones
        made counts no more. Return the new ones by name."""
        values = {"organization": organization, "ids": list(ids), "signal": None}
        with self._change(organization) as transaction:
            rows = transaction.rows("metric_rules.renew", values)
        return sorted((_version(*row) for row in rows), key=lambda one: one.rule.name)

    def retire(self, organization: UUID) -> None:
        """Take the points of ended versions out of the lake whose metric a current version makes of stored rows:
        both would be added up. An ingest that began before its version ended may have committed some since."""
        with self._database.transaction() as transaction:
            _retire(transaction, organization)

    def native_metric(self, organization: UUID, names: Collection[str]) -> str | None:
        """Return one of these metrics that live segments of senders hold, by the name that was sent or Prometheus'
        name; None: they hold none of them. Of a segment with more than 2,000 fingerprints only the first hundred names
        are known, as they were sent. `names` are names of rules' metrics."""
        prints = {digest64("metric_name", name): name for name in names}
        values = {
            "organization": organization,
            "fingerprints": list(prints),
            "incomplete": INCOMPLETE,
            "pattern": rf'(^|[^\\])"({"|".join(names)})"',
            "rule_prefix": RULE_PREFIX,
        }
        if not names:
            return None
        if rows := self._database.rows("metric_rules.native_by_fingerprint", values):
            return min(prints[one] for one in rows[0][0] if one in prints)
        rows = self._database.rows("metric_rules.native_by_statistics", values)
        return min({*names}.intersection(rows[0][0])) if rows else None

    @contextmanager
    def _change(self, organization: UUID) -> Iterator[Transaction]:
        """Open the only transaction that changes rules of this organization; NotFound without the organization."""
        with self._database.transaction() as transaction:
            if not transaction.rows("metric_rules.lock", {"organization": organization}):
                raise NotFound(f"organization {organization} not found")
            yield transaction
            _retire(transaction, organization)


def _retire(transaction: Transaction, organization: UUID) -> None:
    transaction.run("metric_rules.retire", {"organization": organization, "rule_prefix": RULE_PREFIX})


def _replace(
    transaction: Transaction, organization: UUID, current: Sequence[RuleVersion], rules: Sequence[MetricRule]
) -> list[RuleChange]:
    check_together(rules)
    changes = rule_changes(current, rules)
    ended = [one.name for one in changes if one.after is None or one.is_new_version]
    kept = [one.after for one in changes if one.after and one.before and not one.is_new_version]
    added = [one.after for one in changes if one.after and (one.before is None or one.is_new_version)]
    transaction.run("metric_rules.end", {"organization": organization, "names": ended})
    for query, written in (("metric_rules.redefine", kept), ("metric_rules.add", added)):
        if written:
            transaction.run_each(query, [_row(organization, rule) for rule in written])
    return changes


def _current(transaction: Transaction, organization: UUID) -> list[RuleVersion]:
    return [_version(*row) for row in transaction.rows("metric_rules.current", {"organization": organization})]


def _find(transaction: Transaction, organization: UUID, name: str) -> RuleVersion:
    rows = transaction.rows("metric_rules.find", {"organization": organization, "name": name})
    if not rows:
        raise _not_found(name)
    return _version(*rows[0])


def _not_found(name: str) -> NotFound:
    return NotFound(f"rule {name!r} not found")


def _version(
    id_: int, organization: UUID, version: int, definition: dict[str, Any], paused: str, since_ns: int | None
) -> RuleVersion:
    return RuleVersion(id_, organization, version, MetricRule.from_json(definition), paused, since_ns)


def _row(organization: UUID, rule: MetricRule) -> dict[str, Any]:
    return {"organization": organization, "name": rule.name, "definition": json.dumps(rule.to_json())}
