"""Everything that a lake serves but Spark, by the code that `lakerunner up` uses: the API, the OTLP ports, a worker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from lakerunner.objects.open import StoreAddress, open_store
from lakerunner.objects.store import ObjectStore
from lakerunner.services.home import Home
from lakerunner.services.parts import Parts, open_parts
from lakerunner.services.processes import add_pubsub, add_query_api, serve, worker_routes
from lakerunner.services.runtime import Runtime
from lakerunner.settings import load_settings
from servers.lake import wait_until
from servers.postgres import drop_database, fresh_database


@dataclass(frozen=True)
class OpenApi:
    """URLs of the three servers, and what is behind them."""

    url: str
    otlp_url: str
    worker_url: str
    grpc_address: str
    home: Path
    token: str
    parts: Parts
    store: ObjectStore


@contextmanager
def open_api(postgres_url: str, directory: Path, **given: Any) -> Iterator[OpenApi]:
    database = fresh_database(postgres_url)
    (directory / "lake").mkdir(parents=True)
    always = {
        "home": directory / "home",
        "store": (directory / "lake").as_uri(),
        "database_url": database,
        "listen": "127.0.0.1:0",
        "otlp_grpc_port": 0,
        "otlp_http_port": 0,
    }
    settings = load_settings({}, always | given)
    runtime, quiet = Runtime("test"), lambda _: None
    home = Home(settings.home)
    runtime.defer("home", home.close)
    parts = open_parts(settings, runtime, quiet, home.token)
    url = serve(settings, runtime, [*add_query_api(parts, quiet), *add_pubsub(parts, quiet)]).url
    home.announce(url)
    store = open_store(StoreAddress(settings.store_url))
    worker_url = serve(settings, runtime, worker_routes(settings, store, runtime.stopping)).url
    wait_until(lambda: httpx.get(f"{url}/readyz").status_code == 200, "every loop began", 60)
    try:
        yield OpenApi(
            url, parts.doors["OTLP HTTP"], worker_url, parts.doors["OTLP gRPC"], settings.home, home.token, parts, store
        )
    finally:
        runtime.shut_down()
        drop_database(database)
