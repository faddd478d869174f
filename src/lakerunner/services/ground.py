"""What every process and command stands on: the index and the address of the object store, opened from settings.

Commands that look at the index alone import this and not parts.py, which brings Spark, DuckDB and all else with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

from lakerunner.index.embedded import EmbeddedPostgres
from lakerunner.index.index import Index
from lakerunner.model.errors import Conflict
from lakerunner.model.organization import DEFAULT_ORGANIZATION
from lakerunner.objects.open import StoreAddress
from lakerunner.services.runtime import Runtime
from lakerunner.settings import Settings

Say = Callable[[str], None]


def open_index(settings: Settings, runtime: Runtime, say: Say) -> Index:
    url = settings.database_url
    if not url:
        server = EmbeddedPostgres(settings.home / "postgres")
        say("starting PostgreSQL")
        url = server.start()
        runtime.defer("postgres", server.stop)
    index = Index.open(url, connections=settings.database_connections)
    runtime.defer("index", index.close)
    index.migrate()
    if index.organizations.find(str(DEFAULT_ORGANIZATION.id)) is None:
        with suppress(Conflict):  # another process starting at the same time made it
            index.organizations.create(DEFAULT_ORGANIZATION)
    return index


def store_address(settings: Settings) -> StoreAddress:
    return StoreAddress(
        settings.store_url,
        tuple(sorted(settings.store_options.items())),
        settings.store_retries,
        settings.store_retry_seconds,
    )


def key_prefix(store_url: str) -> str:
    """What stands before our keys in the bucket: `a/b/` for s3://bucket/a/b."""
    url = urlsplit(store_url)
    path = url.path.strip("/")
    return f"{path}/" if path and url.scheme != "file" else ""


def now_ns() -> int:
    return time.time_ns()


def without_secrets(url: str) -> str:
    """An address without user and password, which may hold a slash; a path of this machine has neither."""
    scheme, separator, rest = url.partition("://")
    return url if scheme == "file" else scheme + separator + rest.rpartition("@")[2]
