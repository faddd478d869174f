"""Run LogQL scripts in a whole lake: every state is an organization of its own, whose lines are pushed over HTTP to
Loki's push API, ingested, and queried over HTTP below /loki/api/v1, behind which are three query workers.

The lines of each state come in three requests, one after the other. The organizations have rules by which neither names
of services nor levels are looked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pyarrow as pa

from conformance.answer import Answer, LogEntry
from conformance.lake import PARTS, query_service, served, started_index, started_workers
from conformance.logql_push import ingest_lines, parts_of, push_request
from conformance.logql_script import LogCase, LogState
from conformance.logql_subject import PLAIN_RULES, asks_lines, question_of
from lakerunner.api.loki.known_rules import KnownRules
from lakerunner.api.loki.loki_api import LokiApi
from lakerunner.api.push.http_doors import LokiPushApi
from lakerunner.api.push.push_store import PushStore
from lakerunner.api.push.receiver import PushLimits, Receiver
from lakerunner.api.query_service import QueryService
from lakerunner.bus.topics import IngestBox
from lakerunner.index.commit import Commit
from lakerunner.index.index import Index
from lakerunner.logql.log_plan import compile_logql
from lakerunner.model.labels import Labels
from lakerunner.model.organization import Organization, Role
from lakerunner.model.source import RAW_PREFIX, SourceObject
from lakerunner.objects.open import StoreAddress, open_store
from lakerunner.objects.store import ObjectStore
from lakerunner.query.engine import Engine
from lakerunner.query.known_segments import KnownSegments
from lakerunner.query.options import Options
from lakerunner.query.row_answer import Coordinator
from lakerunner.services.parts import open_sandboxes
from lakerunner.settings import load_settings

_MAX_BYTES = 1 << 24
_LIMITS = PushLimits(max_seconds=0.01, max_bytes=1 << 24, max_waiting_bytes=1 << 26, max_waiting_requests=100)


@dataclass
class ScriptedLogLake:
    """The organizations and their `keys`, by state. `engine` is that behind the API."""

    url: str
    organizations: dict[LogState, UUID]
    keys: dict[LogState, str]
    engine: Engine
    client: httpx.Client

    def workers_of(self, case: LogCase) -> set[str]:
        """Return the workers that evaluate parts of it."""
        question = question_of(case)
        plan = compile_logql(question, question.end_ns)
        answer = self.engine.answer(self.organizations[case.state], plan, Options(question.end_ns))
        for _ in answer:
            pass
        return set(answer.account.workers)

    def ask(self, case: LogCase) -> Answer:
        fields, path = fields_of(case)
        headers = {
            "authorization": f"Bearer {self.keys[case.state]}",
            "x-loki-response-encoding-flags": "categorize-labels",
        }
        response = self.client.post(f"{self.url}/loki/api/v1/{path}", data=fields, headers=headers)
        if 400 <= response.status_code < 500:
            return Answer(error=response.text)
        if response.status_code != 200:
            raise ConnectionError(f"{response.status_code} {response.text[:500]}")
        return answer_of_json(response.json()["data"])


def fields_of(case: LogCase) -> tuple[dict[str, str], str]:
    """Return the form of a case, and the name of its endpoint."""
    if asks_lines(case):
        window = case.window
        fields = {"start": str(window.start), "end": str(window.end), "direction": case.direction}
        interval = {"interval": f"{case.interval / 1e9}"} if case.interval else {}
        return {"query": case.query, "limit": str(case.limit), **fields, **interval}, "query_range"
    if case.instant:
        return {"query": case.query, "time": str(case.steps.start)}, "query"
    steps = case.steps
    fields = {"start": str(steps.start), "end": str(steps.end), "step": f"{steps.step / 1e9}"}
    return {"query": case.query, **fields}, "query_range"


def answer_of_json(data: dict[str, Any]) -> Answer:
    kind, result = data["resultType"], data["result"]
    if kind == "scalar":
        return Answer("scalar", scalar=float(result[1]))
    if kind == "streams":
        return Answer("streams", entries=[entry for one in result for entry in _entries(one)])
    return Answer(kind, [_series(one) for one in result])


def _entries(stream: dict[str, Any]) -> Iterator[LogEntry]:
    for time, text, kinds in stream["values"]:
        metadata, parsed = (_labels(kinds.get(kind, {})) for kind in ("structuredMetadata", "parsed"))
        yield LogEntry(int(time), text, _labels(stream["stream"]), metadata, parsed)


def _series(one: dict[str, Any]) -> tuple[Labels, list[tuple[int, float]]]:
    points = [one["value"]] if "value" in one else one["values"]
    # Times are seconds with at most three decimals.
    return _labels(one["metric"]), [(round(time * 1000) * 1_000_000, float(value)) for time, value in points]


def _labels(given: dict[str, str]) -> Labels:
    return tuple(sorted(given.items()))


# ---- the lake


@contextmanager
def scripted_log_lake(directory: Path, cases: Iterable[LogCase]) -> Iterator[ScriptedLogLake]:
    """Start a lake with the lines of these cases."""
    states = {state: UUID(int=place) for place, state in enumerate(dict.fromkeys(case.state for case in cases), 1)}
    with ExitStack() as stack:
        address = StoreAddress((directory / "store").as_uri())
        url, index = stack.enter_context(started_index(directory))
        for organization in states.values():
            index.organizations.create(Organization(organization, f"state-{organization}"))
            index.organizations.set_stream_rules(organization, PLAIN_RULES)
        client = stack.enter_context(httpx.Client(timeout=120))
        service = query_service(directory, index)
        with pushing(index, open_store(address), service) as door:
            keys = {state: _pushed(index, client, door, state, one) for state, one in states.items()}
        for organization in states.values():
            _ingest(index, address, organization)
        _, remote = stack.enter_context(started_workers(directory, url, address))
        sandboxes = open_sandboxes(load_settings({}, {"home": directory}))
        stack.callback(sandboxes.close)
        engine = Engine(KnownSegments(index), remote, Coordinator(sandboxes))
        api = LokiApi(engine, service, rules=KnownRules(index.organizations.stream_rules))
        server = stack.enter_context(served(api.routes()))
        yield ScriptedLogLake(server.url, states, keys, engine, client)


@contextmanager
def pushing(index: Index, store: ObjectStore, service: QueryService) -> Iterator[str]:
    """Serve Loki's push API; yield its URL."""
    bugs: list[str] = []
    receiver = Receiver(PushStore(store, index.pushes, lambda _: None), _LIMITS, bugs.append)
    receiver.start()
    try:
        with served(LokiPushApi(receiver, service.authenticator, _MAX_BYTES).routes()) as server:
            yield server.url
    finally:
        receiver.stop()
    assert bugs == []


def _pushed(index: Index, client: httpx.Client, url: str, state: LogState, organization: UUID) -> str:
    """Push the lines of a state; return a key to read them."""
    writer = index.keys.create(organization, "writer", frozenset({Role.WRITE}))
    headers = {"authorization": f"Bearer {writer}", "content-type": "application/x-protobuf"}
    for part in parts_of(state, PARTS):
        body = pa.Codec("snappy").compress(push_request(part), asbytes=True)
        response = client.post(f"{url}/loki/api/v1/push", content=body, headers=headers)
        if response.status_code != 204:
            raise ConnectionError(f"{response.status_code} {response.text}")
    return index.keys.create(organization, "reader", frozenset({Role.READ}))


def _ingest(index: Index, address: StoreAddress, organization: UUID) -> None:
    """Ingest what was pushed for an organization, one object after the other in the order of their arrival."""
    store = open_store(address)
    metas = sorted(store.list(f"{RAW_PREFIX}{organization}/"), key=lambda meta: meta.modified_ns)
    for one in (store.head(meta.key) for meta in metas):
        source = SourceObject(store.bucket, one.key, one.etag or "", one.size, one.modified_ns)
        result = ingest_lines(address, IngestBox(organization, "loki", "logs", (source,)))
        if result.failed:
            raise AssertionError(f"a script's lines were set aside: {result.failed}")
        if result.segments:
            index.commit(Commit(result.segments, (), ()))
