"""/openapi.json of whole processes: every route is in it, nothing else is, and what it says is so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Route, WebSocketRoute

from lakerunner.api.app import admin_routes, build_app
from lakerunner.api.openapi import Endpoint, Operation, Reply, document
from lakerunner.api.server import HttpServer, bind
from lakerunner.objects.open import StoreAddress, open_store
from lakerunner.services.parts import open_parts
from lakerunner.services.processes import add_pubsub, add_query_api, worker_routes
from lakerunner.services.runtime import Runtime
from lakerunner.settings import Settings, load_settings
from servers.lake import wait_until
from servers.postgres import drop_database, fresh_database
from suites.openapi_rules import broken_rules, mismatches, operations

TOKEN = "lrt_of_a_home"


@dataclass(frozen=True)
class Served:
    """A process's app on a socket."""

    app: Starlette
    url: str

    def document(self) -> dict[str, Any]:
        got: dict[str, Any] = httpx.get(f"{self.url}/openapi.json").raise_for_status().json()
        return got


def _settings(directory: Path, **given: Any) -> Settings:
    (directory / "lake").mkdir()
    always = {"home": directory, "store": (directory / "lake").as_uri(), "otlp_listen": ""}
    return load_settings({}, always | given)


@pytest.fixture(scope="module")
def lake(embedded_postgres_url: str, tmp_path_factory: pytest.TempPathFactory, warmed: None) -> Iterator[Served]:
    """All that `lakerunner up` serves, without Spark."""
    url = fresh_database(embedded_postgres_url)
    runtime = Runtime("test")
    parts = open_parts(_settings(tmp_path_factory.mktemp("up"), database_url=url), runtime, lambda _: None, TOKEN)
    routes = [*add_query_api(parts, lambda _: None), *add_pubsub(parts, lambda _: None)]
    app = build_app(admin_routes(runtime.health), routes)
    server = HttpServer(app, bind("127.0.0.1", 0), lambda _: None)
    server.start()
    runtime.defer("http", server.stop)
    wait_until(lambda: httpx.get(f"{server.url}/readyz").status_code == 200, "every loop began", 30)
    yield Served(app, server.url)
    runtime.shut_down()
    drop_database(url)


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    runtime = Runtime("test")
    settings = _settings(tmp_path_factory.mktemp("worker"))
    routes = worker_routes(settings, open_store(StoreAddress(settings.store_url)), runtime.stopping)
    app = build_app(admin_routes(runtime.health), routes)
    server = HttpServer(app, bind("127.0.0.1", 0), lambda _: None)
    server.start()
    yield Served(app, server.url)
    server.stop()


@pytest.fixture(params=["lake", "worker"])
def served(request: pytest.FixtureRequest) -> Served:
    found: Served = request.getfixturevalue(request.param)
    return found


def test_every_route_is_described_and_nothing_else(served: Served) -> None:
    """A route that fails here is to be an Endpoint with its operations (api/openapi.py), not a plain Route."""
    routes = [route for route in served.app.routes if isinstance(route, Route)]
    sockets = {route.path for route in served.app.routes if isinstance(route, WebSocketRoute)}
    assert len(routes) + len(sockets) == len(served.app.routes)
    assert sockets <= {route.path for route in routes}
    real = {(route.path_format, method) for route in routes for method in route.methods or () if method != "HEAD"}
    described = {(path, method.upper()) for path, method, _ in operations(served.document())}
    assert described == real
    assert len(real) > 5


def test_the_document_keeps_the_rules(served: Served) -> None:
    assert broken_rules(served.document()) == []


def _request(path: str, method: str, operation: dict[str, Any], media_type: str | None) -> httpx.Request:
    """The request that the document's examples make."""
    examples = {one["name"]: one["example"] for one in operation.get("parameters", []) if "example" in one}
    in_path = re.findall(r"\{(\w+)\}", path)
    query = {name: value for name, value in examples.items() if name not in in_path}
    content = operation["requestBody"]["content"][media_type]["example"] if media_type else None
    body = {"json": content} if content is not None else {}
    key = {"authorization": f"Bearer {TOKEN}"} if path.startswith("/api/v1/keys") else {}
    return httpx.Request(method, f"http://localhost{path.format_map(examples)}", params=query, headers=key, **body)


def test_examples_are_real_requests(lake: Served) -> None:
    """Each gets an answer that the document names, of the form it states."""
    document, sent = lake.document(), []
    for path, method, operation in operations(document):
        content = operation.get("requestBody", {}).get("content", {})
        exemplified = [media_type for media_type, given in content.items() if "example" in given]
        for media_type in exemplified if content else [None]:
            request = _request(path, method, operation, media_type)
            with httpx.Client(timeout=30) as client:
                request.url = request.url.copy_with(**_address(lake.url))
                response = client.send(request)
            upgrades = "101" in operation["responses"]  # such a request needs the headers of an upgrade
            assert response.status_code in ((400,) if upgrades else (200, 201, 204, 501)), (path, response.text)
            _assert_stated(document, operation, response)
            sent.append(f"{method} {path}")
    assert {"post /api/v1/sql", "get /api/v1/sql/tables", "post /v1/{signal}", "get /api/v1/objects"} <= set(sent)
    assert {"post /loki/api/v1/push", "post /api/v1/events/{provider}", "get /metrics"} <= set(sent)


def test_wrong_requests_are_answered_as_stated(lake: Served) -> None:
    document = lake.document()
    for path, method, operation in operations(document):
        if operation["security"]:
            where = path.format_map({"signal": "logs", "provider": "s3", "name": "x"})
            response = httpx.request(method, f"{lake.url}{where}", headers={"x-api-key": "lrk_wrong"}, content=b"")
            assert response.status_code in (400, 401, 415), (path, response.text)
            _assert_stated(document, operation, response)


def _address(url: str) -> dict[str, Any]:
    parsed = httpx.URL(url)
    return {"host": parsed.host, "port": parsed.port}


def _assert_stated(document: dict[str, Any], operation: dict[str, Any], response: httpx.Response) -> None:
    stated = operation["responses"][str(response.status_code)].get("content", {})
    media_type = response.headers.get("content-type", "").partition(";")[0]
    if not stated:
        assert response.content == b""
        return
    assert media_type in stated, (operation["operationId"], media_type)
    if media_type == "application/json":
        assert list(mismatches(document, stated[media_type]["schema"], response.json())) == []


def test_an_endpoint_serves_the_methods_it_states() -> None:
    said = Operation("t", "does it", {200: Reply("done")})
    endpoint = Endpoint("/a/{b:int}/c", lambda request: None, GET=said, DELETE=said)  # type: ignore[arg-type,return-value]
    assert endpoint.methods == {"GET", "HEAD", "DELETE"}
    paths = document([endpoint, Route("/plain", lambda request: None)])["paths"]
    assert list(paths) == ["/a/{b}/c"]
    assert [paths["/a/{b}/c"][method]["operationId"] for method in ("get", "delete")] == ["get_a_b_c", "delete_a_b_c"]


def test_the_rules_find_what_is_broken() -> None:
    """So that a document without problems says something."""
    said = Operation("t", "does it", {200: Reply("done", {"application/json": {"type": "objekt", "required": ["a"]}})})
    broken = document([Endpoint("/a/{b}", lambda request: None, GET=said)])  # type: ignore[arg-type,return-value]
    broken["paths"]["/a/{b}"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]["properties"] = {}
    assert broken_rules(broken) == [
        "get /a/{b}: path parameters set()",
        "get /a/{b}: no type objekt",
        "get /a/{b}: required a",
    ]
