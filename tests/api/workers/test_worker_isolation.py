"""A worker reads for a unit what is its organization's, whatever the unit says, however warm the cache is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest

from lakerunner.api.app import build_app
from lakerunner.api.server import HttpServer, bind
from lakerunner.api.workers.worker_api import KEY_HEADER
from lakerunner.lakeql import compile_sql
from lakerunner.model.labels.matcher import Matcher
from lakerunner.plan.operator import Operator
from lakerunner.plan.plan import Leaf
from lakerunner.promql.operators import FetchSamples, Selection
from lakerunner.query.metrics.list_series import ListSeries
from lakerunner.query.unit import Unit
from lakerunner.services.processes import worker_routes
from lakerunner.settings import load_settings
from query.sample_lake import HOUR, START, Elsewhere
from suites.tenants import AMBER, BASIL, Tenant

OTHER = {AMBER: BASIL, BASIL: AMBER}
WORKER_KEY = "the secret of this cluster"


@dataclass(frozen=True)
class Worker:
    url: str

    def run(self, unit: dict[str, Any], key: str = WORKER_KEY) -> httpx.Response:
        return httpx.post(f"{self.url}/internal/v1/run", json=unit, headers={KEY_HEADER: key}, timeout=30)


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory, warmed: None) -> Iterator[Worker]:
    """With the segments of both tenants in its store, and in its cache."""
    directory: Path = tmp_path_factory.mktemp("worker")
    (directory / "lake").mkdir()
    store = Elsewhere(directory / "lake")
    for tenant in (AMBER, BASIL):
        for path, data in tenant.segments[1].items():
            store.put(path, data)
    given = {"home": directory, "store": (directory / "lake").as_uri(), "worker_key": WORKER_KEY}
    routes = worker_routes(load_settings({}, given), store, Event())
    server = HttpServer(build_app(routes), bind("127.0.0.1", 0), lambda _: None)
    server.start()
    made = Worker(server.url)
    for tenant in (AMBER, BASIL):
        whole = made.run(unit_of(tenant))
        assert (whole.status_code, tenant.word("svc").encode() in whole.content) == (200, True)
        assert told_of(OTHER[tenant], whole) == []
    yield made
    server.stop()


def unit_of(tenant: Tenant) -> dict[str, Any]:
    """As query-api would send it, on the wire."""
    sql = "SELECT service_name, message, organization_id, collector FROM logs"
    (leaf,) = compile_sql(sql, tenant.organization.id, START).leaves
    logs = tuple(segment for segment in tenant.segments[0] if segment.signal == "logs")
    unit: dict[str, Any] = json.loads(Unit(tenant.organization.id, leaf, logs).to_bytes())
    return unit


EVERYTHING = Selection((Matcher("__name__", "!=", ""),), START // 1_000_000 - 1, (START + 2 * HOUR) // 1_000_000)


def metrics_unit_of(tenant: Tenant, operator: Operator) -> dict[str, Any]:
    assert EVERYTHING.scan
    metrics = tuple(segment for segment in tenant.segments[0] if segment.signal == "metrics")
    unit: dict[str, Any] = json.loads(Unit(tenant.organization.id, Leaf(EVERYTHING.scan, operator), metrics).to_bytes())
    return unit


def told_of(tenant: Tenant, response: httpx.Response) -> list[str]:
    said = (response.content.decode("latin-1") + str(response.headers)).lower()
    return [word for word in tenant.markers if word in said]


@pytest.mark.parametrize("key", ["", "wrong", WORKER_KEY[:-1]])
def test_without_the_clusters_key_nothing_is_run(worker: Worker, key: str) -> None:
    refused = worker.run(unit_of(BASIL), key)
    assert refused.status_code == 401
    assert refused.json()["error"]["message"] == "this worker only accepts units from a query-api with its worker_key"


def test_anothers_segment_in_a_unit_is_refused(worker: Worker) -> None:
    mixed = unit_of(AMBER)
    mixed["segments"].append(unit_of(BASIL)["segments"][0])
    refused = worker.run(mixed)
    assert refused.status_code == 422
    assert "is not one of organization a1a1a1a1" in refused.json()["error"]["message"]
    forged = unit_of(BASIL) | {"organization": str(AMBER.organization.id)}
    assert worker.run(forged).status_code == 422


def test_anothers_segment_under_ones_own_name_is_not_there(worker: Worker) -> None:
    """Neither in the store, where its path begins with the organization, nor in the cache, that holds it already."""
    forged = unit_of(BASIL) | {"organization": str(AMBER.organization.id)}
    for segment in forged["segments"]:
        segment["organization"] = str(AMBER.organization.id)
    response = worker.run(forged)
    assert (response.content[:1], json.loads(response.content[5:])["kind"]) == (b"E", "Absent")
    assert [word for word in told_of(BASIL, response) if word not in json.dumps(forged)] == []


@pytest.mark.parametrize(
    "task",
    [
        FetchSamples(EVERYTHING),
        *(ListSeries(what, EVERYTHING, 100) for what in ("series", "exemplars", "metadata")),
    ],
)
def test_a_unit_of_metrics_reads_what_is_its_organizations(worker: Worker, task: Operator) -> None:
    """With both tenants' series known to the worker."""
    for tenant in (AMBER, BASIL):
        whole = worker.run(metrics_unit_of(tenant, task))
        assert (whole.status_code, tenant.name.encode() in whole.content) == (200, True), whole.content
        assert told_of(OTHER[tenant], whole) == []
    assert worker.run(metrics_unit_of(BASIL, task), "wrong").status_code == 401
    mixed = metrics_unit_of(AMBER, task)
    mixed["segments"].append(metrics_unit_of(BASIL, task)["segments"][0])
    forged = metrics_unit_of(BASIL, task) | {"organization": str(AMBER.organization.id)}
    for unit in (mixed, forged):
        refused = worker.run(unit)
        assert refused.status_code == 422
        assert "is not one of organization a1a1a1a1" in refused.json()["error"]["message"]
    for segment in forged["segments"]:
        segment["organization"] = str(AMBER.organization.id)
    response = worker.run(forged)
    assert (response.content[:1], json.loads(response.content[5:])["kind"]) == (b"E", "Corrupt")
    assert [word for word in told_of(BASIL, response) if word not in json.dumps(forged)] == []
    for segment in forged["segments"]:
        segment["collector"] = f"../{BASIL.organization.id}/{BASIL.collector}"
    assert worker.run(forged).status_code in (400, 422)


@pytest.mark.parametrize(
    "collector", [f"../{BASIL.organization.id}/{BASIL.collector}", "..", f"/{BASIL.organization.id}", "a/b", ""]
)
def test_no_name_leads_out_of_the_organization(worker: Worker, collector: str) -> None:
    forged = unit_of(AMBER)
    for segment in forged["segments"]:
        segment["collector"] = collector
    refused = worker.run(forged)
    assert refused.status_code in (400, 422)
    assert "collector name" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_parquet('{path}')",
        "SELECT * FROM '{path}'",
        "SELECT * FROM glob('**')",
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM scan_2",
        "ATTACH 'x.db' AS x",
        "SELECT 1; SELECT 2",
    ],
)
def test_the_sql_of_a_unit_reads_its_relation_and_nothing_else(worker: Worker, sql: str) -> None:
    hostile = sql.format(path=min(BASIL.segments[1]))
    response = worker.run(unit_of(AMBER) | {"operator": {"name": "sql", "sql": hostile, "steady": True}})
    assert response.content[:1] == b"E", response.content
    assert json.loads(response.content[5:])["message"].startswith("the query cannot be run: ")
    assert [word for word in told_of(BASIL, response) if word not in hostile] == []
