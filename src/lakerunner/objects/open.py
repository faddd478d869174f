"""Open a store by its address. Comes in: a URL and options. Goes out: an ObjectStore.

    file:///var/lib/lake        a directory, created if need be
    memory://name               this process's memory; the same name is the same store
    s3://bucket/prefix          S3 and what speaks its protocol; gs:// and az:// (container) likewise

Options are obstore's: those of the store (`endpoint`, `region`, `access_key_id`, ...) and those of its HTTP client
(`allow_http`, `timeout`, `proxy_url`, ...). The vendor's usual variables and identities provide what they leave out. A
failed request is retried after a pause that grows exponentially and is jittered, `retries` times at most and not longer
than `retry_seconds`; then the call raises Unavailable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from obstore.exceptions import BaseError, UnknownConfigurationKeyError
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from lakerunner.model.errors import Unavailable, UserError
from lakerunner.objects.bucket import BucketStore
from lakerunner.objects.local import LocalStore
from lakerunner.objects.store import ObjectStore, SegmentStore

# Options of the HTTP client, not of the store: obstore takes them separately.
_CLIENT_OPTIONS = {
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "default_content_type",
    "http1_only",
    "http2_keep_alive_interval",
    "http2_keep_alive_timeout",
    "http2_keep_alive_while_idle",
    "http2_max_frame_size",
    "http2_only",
    "pool_idle_timeout",
    "pool_max_idle_per_host",
    "proxy_ca_certificate",
    "proxy_excludes",
    "proxy_url",
    "randomize_addresses",
    "read_timeout",
    "root_certificate",
    "timeout",
    "user_agent",
}
# A silent server is given up after read_timeout, which must also suffice to send one whole object; one that
# trickles, after timeout.
_CLIENT_DEFAULTS = {"connect_timeout": "5s", "read_timeout": "30s", "timeout": "5min"}
_BACKOFF = {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 2}

# Variables of the environment that obstore reads, by the start of their names.
_VARIABLES = {
    "s3": (S3Store, ("AWS_",)),
    "gs": (GCSStore, ("GOOGLE_", "SERVICE_ACCOUNT")),
    "az": (AzureStore, ("AZURE_", "MSI_ENDPOINT", "IDENTITY_")),
}

# The content of the memory stores, by URL; it lives as long as the process.
_MEMORIES: dict[str, MemoryStore] = {}


@dataclass(frozen=True)
class StoreAddress:
    """Where a store is; it travels to Spark tasks. The options may hold secrets, so its repr does not show them."""

    url: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    retries: int = 8
    retry_seconds: float = 30.0

    def __post_init__(self) -> None:
        if self.retries < 0 or self.retry_seconds <= 0:
            raise UserError(f"a store needs retries >= 0 and retry_seconds > 0: {self}")


def open_store(address: StoreAddress) -> ObjectStore:
    """Open a store. No request is sent yet: a missing bucket shows at the first call. The directory of a local store is
    created."""
    store = _open(address)
    if isinstance(store, LocalStore):
        try:
            store.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot create store {address.url!r}: {error.strerror}") from error
    return store


def check_store(address: StoreAddress) -> None:
    """Raise UserError if the address or its options cannot be used. No directory is created and no request is sent."""
    _open(address)


def _open(address: StoreAddress) -> ObjectStore:
    scheme, separator, _ = address.url.partition("://")
    if not separator or scheme not in STORES:
        known = ", ".join(f"{name}://" for name in STORES)
        raise UserError(f"store {address.url!r} has an unknown scheme: it must start with one of {known}")
    return STORES[scheme](address)


@cache
def shared_store(address: StoreAddress) -> ObjectStore:
    """Return the one client of this process for the address: connections and credentials are kept across tasks. A
    missing directory is not created: it means that the store is down, not that its objects are gone."""
    return _open(address)


def with_variables(address: StoreAddress, environment: Mapping[str, str]) -> StoreAddress:
    """Return the address with the vendor's variables among its options, for a process whose environment lacks them:
    Spark's processes have none of our secrets (pipeline/jvm.py). The address's own options win."""
    kind, prefixes = _VARIABLES.get(address.url.partition("://")[0], (None, ()))
    if kind is None:
        return address
    config = {name: value for name, value in address.options if name not in _CLIENT_OPTIONS}
    added: dict[str, str] = {}
    for variable in sorted(name for name in environment if name.startswith(prefixes)):
        option = variable.lower()
        if _is_new_option(kind, {**config, **added, option: environment[variable]}):
            added[option] = environment[variable]
    return replace(address, options=(*address.options, *added.items()))


def _is_new_option(kind: Callable[..., Any], config: dict[str, str]) -> bool:
    """Whether obstore knows all names of the config, and none of them is given twice (`endpoint`, `aws_endpoint`)."""
    try:
        kind("bucket", config=config)
    except UnknownConfigurationKeyError:
        return False
    except (BaseError, ValueError) as error:  # otherwise a value is missing or wrong: opening the store reports it
        return "Duplicate key" not in str(error)
    return True


def _local(address: StoreAddress) -> ObjectStore:
    _refuse_options(address)
    path = Path(unquote(address.url.removeprefix("file://")))
    if not path.is_absolute():
        raise UserError(f"store {address.url!r} is not an absolute path: write file:///path/of/the/store")
    return LocalStore(path)


def _memory(address: StoreAddress) -> ObjectStore:
    _refuse_options(address)
    content = _MEMORIES.setdefault(address.url, MemoryStore())
    return BucketStore(content, address.url.removeprefix("memory://") or "memory", address.url)


def _cloud(from_url: Callable[..., Any], address: StoreAddress) -> ObjectStore:
    client = {name: value for name, value in address.options if name in _CLIENT_OPTIONS}
    config = {name: value for name, value in address.options if name not in _CLIENT_OPTIONS}
    retry = {
        "backoff": _BACKOFF,
        "max_retries": address.retries,
        "retry_timeout": timedelta(seconds=address.retry_seconds),
    }
    try:
        store = from_url(address.url, config=config, client_options={**_CLIENT_DEFAULTS, **client}, retry_config=retry)
    except (BaseError, ValueError) as error:
        # Not chained: obstore's text can quote the options' values.
        raise UserError(f"cannot open store {address.url!r}: {_without_values(error, address)}") from None
    scheme, bucket, *_ = urlsplit(address.url)
    return BucketStore(store, bucket, f"{scheme}://{bucket}")


def _refuse_options(address: StoreAddress) -> None:
    if address.options:
        names = ", ".join(name for name, _ in address.options)
        raise UserError(f"store {address.url!r} takes no options, but {names} is set")


def _without_values(error: Exception, address: StoreAddress) -> str:
    """Return the first line of the error; a value that it quotes may be a secret."""
    text = str(error).partition("\n")[0]
    for _, value in address.options:
        text = text.replace(f'"{value}"', "its value")
    return text


STORES: dict[str, Callable[[StoreAddress], ObjectStore]] = {
    "file": _local,
    "memory": _memory,
    "s3": partial(_cloud, S3Store.from_url),
    "gs": partial(_cloud, GCSStore.from_url),
    "az": partial(_cloud, AzureStore.from_url),
}


class HurryingStore:
    """Reads of a store that may be down, on behalf of waiting clients. Safe to use from many threads. Both arguments
    are the same store; `patient` retries.

    What always holds: every read calls the store. While reads succeed, a read that fails is retried, for as long as the
    store was opened with; after one that failed all the same nothing is retried, until a read succeeds. So a store that
    is down is waited for once, not once for each of a query's many reads, and the first read finds a store that is
    back.
    """

    def __init__(self, patient: SegmentStore, hurried: SegmentStore) -> None:
        self._patient = patient
        self._hurried = hurried
        self._is_away = False

    def get_range(self, key: str, start: int, length: int) -> memoryview:
        store = self._hurried if self._is_away else self._patient
        try:
            data = store.get_range(key, start, length)
        except Unavailable:
            self._is_away = True
            raise
        self._is_away = False
        return data

    def local_path(self, key: str) -> Path | None:
        return self._patient.local_path(key)
