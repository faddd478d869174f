"""Rules that make metrics, over HTTP: /api/v1/rules/materialization (docs/formats/materialization.md).

All rules are those of the caller's organization: no request can name another. Keys with the role read see them, those
with the role admin change them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lakerunner.api.auth import Authenticator
from lakerunner.api.body import BodyLimit, read_json
from lakerunner.api.openapi import JSON, Body, Endpoint, Operation, Parameter, Reply, json_reply
from lakerunner.api.schema import BOOLEAN, COUNT, TEXT, array, closed, flag, one_of, record, text
from lakerunner.index.metric_rules import MetricRules
from lakerunner.index.rule_history import NO_COVERAGE, RuleHistory
from lakerunner.model.errors import UserError
from lakerunner.model.metric_rules.metric_rule import DEFAULT_MAX_SERIES, KINDS, MetricRule, RuleVersion
from lakerunner.model.metric_rules.rule_changes import RuleChange
from lakerunner.model.organization import Role, checked_name
from lakerunner.model.time import iso_time

PATH = "/api/v1/rules/materialization"
RULE_LIMIT = BodyLimit(64 << 10, "the limit of a rule")
RULES_LIMIT = BodyLimit(4 << 20, "the limit of a list of rules")
_FIELDS = {
    "signal": one_of(KINDS),
    "selector": text("LogQL of lines; matchers {name=value} of spans and points"),
    "measure": text("count, bytes, errors, sum(FIELD), histogram(FIELD)"),
    "metric": text("name of the metric that the rule makes"),
    "source_metric": text("metric that a rule over metrics reads"),
    "dimensions": array(TEXT, description="labels that the metric keeps"),
    "enabled": BOOLEAN,
    "max_series": {**COUNT, "description": f"series after which the rule is paused; default: {DEFAULT_MAX_SERIES}"},
}
_OPTIONAL = "source_metric? description? dimensions? enabled? max_series?"
_STORED = record(
    "name version signal selector measure metric source_metric description dimensions enabled max_series paused state "
    "since",
    since=text('from when on the rule covers stored data too; "": it covers what is ingested'),
    version=COUNT,
    state=text("whether it makes points: active, disabled, or why it makes none"),
    paused=text('why the rule makes no points although it is enabled; "": it is not paused'),
    **_FIELDS,
)
_COVERED = record(
    "rule segments rows covered_segments covered_rows unreadable_segments",
    rule=_STORED,
    **dict.fromkeys(("segments", "rows", "covered_segments", "covered_rows", "unreadable_segments"), COUNT),
)
_CHANGE = record(
    "name change fields? new_version?",
    change=one_of(("add", "change", "drop")),
    fields=array(TEXT, description="names of the changed fields"),
    new_version=flag("whether its points mean something else than before"),
)
_EXAMPLE = {
    "signal": "logs",
    "selector": '{service_name="checkout"} | json | level="error"',
    "measure": "count",
    "metric": "checkout_errors",
    "dimensions": ["service_name", "region"],
}
_NAME = Parameter("name", "path", TEXT, "name of the rule", "checkout-errors")
_REFUSALS = (400, 401, 403, 404, 409, 413, 415, 503)
LIST = Operation(
    "rules",
    "List the rules of the organization",
    json_reply("The rules by name.", record("rules", rules=array(_STORED))),
)
SHOW = Operation(
    "rules", "Return one rule", json_reply("The rule.", _STORED), parameters=(_NAME,), errors=(400, 401, 403, 404, 503)
)
PUT = Operation(
    "rules",
    "Create or replace a rule",
    json_reply("The rule with its version.", _STORED),
    description="Another selector, measure, metric or other dimensions make a new version. The same rule again "
    "changes nothing.",
    parameters=(_NAME,),
    body={JSON: Body(closed(record(f"name? signal selector measure metric {_OPTIONAL}", **_FIELDS)), _EXAMPLE)},
    errors=_REFUSALS,
)
DROP = Operation(
    "rules",
    "Drop a rule",
    {204: Reply("Its metric ends; queries read rows from now on.")},
    parameters=(_NAME,),
    errors=(400, 401, 403, 404, 503),
)
APPLY = Operation(
    "rules",
    "Make these rules the only ones of the organization",
    json_reply("What changed, or would change.", record("changes", changes=array(_CHANGE))),
    description="All of it or nothing; an empty list drops all rules.",
    parameters=(Parameter("dry_run", "query", one_of(("true", "false")), "return the changes only", "false"),),
    body={
        JSON: Body(
            closed(record("rules", rules=array(record(f"name signal selector measure metric {_OPTIONAL}", **_FIELDS)))),
            {"rules": [{"name": "checkout-errors", **_EXAMPLE}]},
        )
    },
    errors=_REFUSALS,
)
ENABLE = Operation(
    "rules",
    "Enable a rule; one that was paused goes on",
    json_reply("The rule.", _STORED),
    parameters=(_NAME,),
    errors=(400, 401, 403, 404, 503),
)
BACKFILL = Operation(
    "rules",
    "Make a rule cover stored data too",
    json_reply("The rule, and how much it covers.", _COVERED),
    description="The data is read in the background, newest hour first. Repeat it with the rule's `since` to see how "
    "far it is.",
    parameters=(_NAME,),
    body={
        JSON: Body(
            closed(record("since", since=text("from this time on, in ISO 8601, or for this age: 30d"))),
            {"since": "30d"},
        )
    },
    errors=_REFUSALS,
)
DISABLE = Operation(
    "rules", "Disable a rule", json_reply("The rule.", _STORED), parameters=(_NAME,), errors=(400, 401, 403, 404, 503)
)


class RuleCheck(Protocol):
    """Checks rules and stores them; `plan` returns what `apply` would change."""

    def put(self, organization: UUID, rule: MetricRule) -> RuleVersion: ...

    def plan(self, organization: UUID, rules: Sequence[MetricRule]) -> list[RuleChange]: ...

    def apply(self, organization: UUID, rules: Sequence[MetricRule]) -> list[RuleChange]: ...

    def set_since(self, organization: UUID, name: str, since: str, now_ns: int) -> RuleVersion: ...


@dataclass(frozen=True)
class RulesApi:
    """The endpoints of rules. What a request defines goes through `checked`."""

    rules: MetricRules
    checked: RuleCheck
    authenticator: Authenticator
    history: RuleHistory

    def routes(self) -> list[Route]:
        return [
            Endpoint(PATH, self.list, GET=LIST),
            Endpoint(f"{PATH}/apply", self.apply, POST=APPLY),
            Endpoint(f"{PATH}/{{name}}/enable", self.enable, POST=ENABLE),
            Endpoint(f"{PATH}/{{name}}/disable", self.disable, POST=DISABLE),
            Endpoint(f"{PATH}/{{name}}/backfill", self.backfill, POST=BACKFILL),
            Endpoint(f"{PATH}/{{name}}", self.put, PUT=PUT),
            Endpoint(f"{PATH}/{{name}}", self.show, GET=SHOW),
            Endpoint(f"{PATH}/{{name}}", self.drop, DELETE=DROP),
        ]

    async def list(self, request: Request) -> Response:
        own = await self._organization(request, Role.READ)
        found = await to_thread.run_sync(self.rules.current, own)
        return JSONResponse({"rules": [_rule_json(one) for one in found]})

    async def show(self, request: Request) -> Response:
        own = await self._organization(request, Role.READ)
        return await _answer(self.rules.find, own, _name(request))

    async def put(self, request: Request) -> Response:
        own, name = await self._organization(request, Role.ADMIN), _name(request)
        body = await read_json(request, RULE_LIMIT)
        if body.setdefault("name", name) != name:
            raise UserError(
                f"the body names rule {str(body['name'])[:64]!r}, the path {name!r}: leave it out of the body"
            )
        return await _answer(self.checked.put, own, MetricRule.from_json(body))

    async def drop(self, request: Request) -> Response:
        own = await self._organization(request, Role.ADMIN)
        await to_thread.run_sync(self.rules.drop, own, _name(request))
        return Response(status_code=204)

    async def apply(self, request: Request) -> Response:
        own = await self._organization(request, Role.ADMIN)
        act = self.checked.plan if _is_dry(request) else self.checked.apply
        body = await read_json(request, RULES_LIMIT)
        changes = await to_thread.run_sync(lambda: act(own, _read_rules(body)))
        return JSONResponse({"changes": [one.to_json() for one in changes]})

    async def enable(self, request: Request) -> Response:
        own = await self._organization(request, Role.ADMIN)
        return await _answer(self.rules.set_enabled, own, _name(request), True)

    async def disable(self, request: Request) -> Response:
        own = await self._organization(request, Role.ADMIN)
        return await _answer(self.rules.set_enabled, own, _name(request), False)

    async def backfill(self, request: Request) -> Response:
        own, name = await self._organization(request, Role.ADMIN), _name(request)
        body = await read_json(request, RULE_LIMIT)
        since = body.get("since")
        if set(body) != {"since"} or not isinstance(since, str):
            raise UserError('the body must be {"since": "30d"}, or a time in ISO 8601')
        version = await to_thread.run_sync(self.checked.set_since, own, name, since, time.time_ns())
        coverage = (await to_thread.run_sync(self.history.coverage, own)).get(version.id, NO_COVERAGE)
        counts = {"segments": coverage.segments, "rows": coverage.rows, "covered_rows": coverage.covered_rows}
        counts |= {"covered_segments": coverage.covered_segments, "unreadable_segments": coverage.aside}
        return JSONResponse({"rule": _rule_json(version), **counts})

    async def _organization(self, request: Request, role: Role) -> UUID:
        caller = await self.authenticator.admit(request, role)
        return caller.organization.id


async def _answer(act: Callable[..., RuleVersion], *values: object) -> Response:
    return JSONResponse(_rule_json(await to_thread.run_sync(act, *values)))


def _name(request: Request) -> str:
    return checked_name("rule", request.path_params["name"])


def _rule_json(one: RuleVersion) -> dict[str, Any]:
    since = "" if one.since_ns is None else iso_time(max(one.since_ns, 0))
    return one.rule.to_json() | {"version": one.version, "paused": one.paused, "state": one.state, "since": since}


def _is_dry(request: Request) -> bool:
    given = request.query_params.get("dry_run", "false")
    if given not in ("true", "false"):
        raise UserError(f"dry_run must be true or false, not {given[:80]!r}")
    return given == "true"


def _read_rules(body: dict[str, Any]) -> list[MetricRule]:
    listed = body.get("rules")
    if set(body) != {"rules"} or not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise UserError('the body must be {"rules": [{"name": "...", ...}, ...]}')
    return [MetricRule.from_json(one) for one in listed]
