"""Settings: the only reader of the environment and of the config file.

Comes in: `LAKERUNNER_<NAME>` variables, a TOML file (`LAKERUNNER_CONFIG`), command-line overrides; the later
wins in the order file, environment, command line. Goes out: one frozen Settings value. An unknown name is refused
with the nearest known one, so a typo never becomes a default. `DATABASE_URL` is taken as `database_url`.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from lakerunner.model.errors import UserError
from lakerunner.model.source import Routes

_PREFIX = "LAKERUNNER_"


def _setting(default: Any, why: str) -> Any:
    factory = {"default_factory": dict} if default == {} else {"default": default}
    return field(**factory, metadata={"why": why})


@dataclass(frozen=True)
class Settings:
    """Each field's `why` is its documentation: `lakerunner settings` prints them."""

    home: Path = _setting(Path(".lakerunner"), "where the embedded parts keep their state")
    store: str = _setting("", "object store URL: file, s3, gs, az or memory; empty: HOME/store")
    store_options: dict[str, str] = _setting({}, "options of that store, e.g. endpoint=...,allow_http=true")
    store_retries: int = _setting(8, "times a store call is tried again before it counts as unavailable")
    store_retry_seconds: float = _setting(30.0, "the longest one store call may go on retrying")
    database_url: str = _setting("", "PostgreSQL; empty: the embedded server under HOME/postgres")
    database_connections: int = _setting(10, "most connections of one process")
    bus: str = _setting("postgres", "postgres, or kafka://host:port[,host:port]")
    bus_topic_prefix: str = _setting("", "set before every Kafka topic, so that two lakes can share a cluster")
    spark_master: str = _setting("local[*]", "local[*], local-cluster[..], spark://, k8s:// or yarn")
    spark_conf: dict[str, str] = _setting({}, "further Spark settings, e.g. spark.executor.memory=4g")
    spark_driver_memory: str = _setting("1g", "heap of the Spark driver; rows never pass through it")
    listen: str = _setting("127.0.0.1:7080", "address of the HTTP API; beyond loopback it wants API keys")
    http_max_connections: int = _setting(1000, "HTTP connections of one port at once; more close idle ones, or get 503")
    cors_origins: str = _setting("", "web origins whose pages may call the API, with a key: https://a.example,...")
    otlp_listen: str = _setting("127.0.0.1", "host of the usual OTLP ports 4317 and 4318; empty: off")
    workers: str = _setting(
        "",
        "query workers: http://host:port,..., dns://name:port or k8s://namespace/service:port; empty: in this process",
    )
    worker_key: str = _setting("", "secret that query-api shows query-worker; needed beyond loopback")
    routes: Routes = _setting(Routes(), "further prefixes of raw objects: list of {prefix, organization, ...}")
    sqs_queue_url: str = _setting("", "SQS queue that the bucket notifies; empty: off")
    pubsub_subscription: str = _setting("", "projects/P/subscriptions/S that the bucket notifies; empty: off")
    pubsub_endpoint: str = _setting("", "where Pub/Sub is, without credentials: an emulator; empty: Google")
    azure_queue_url: str = _setting("", "Azure Storage queue that Event Grid writes to; empty: off")
    queue_options: dict[str, str] = _setting({}, "of that queue, e.g. region=...; docs/formats/notifications.md")
    lister_seconds: float = _setting(1.0, "pause between two listings of the raw prefixes")
    settle_seconds: float = _setting(1.0, "a local file younger than this may still be being written")
    reminder_seconds: float = _setting(900.0, "what came so long ago and is not ingested, or merged, is told of again")
    box_max_seconds: float = _setting(2.0, "a box is closed at this age: bounds the delay of ingest")
    box_max_bytes: int = _setting(256 << 20, "a box is closed at this size of raw objects")
    box_max_objects: int = _setting(1000, "a box is closed at this many objects")
    box_max_held: int = _setting(20_000, "most messages a boxer holds over all its boxes")
    box_max_attempts: int = _setting(3, "times a box may end its worker before it is cut in halves")
    object_max_bytes: int = _setting(256 << 20, "a raw object larger than this, unpacked, is set aside")
    task_max_bytes: int = _setting(64 << 20, "raw bytes, unpacked, that one segment is made from at most")
    compact_max_seconds: float = _setting(60.0, "segments to merge wait so long for others of their hour")
    compact_max_segments: int = _setting(32, "most segments of one merge: each takes a share of its memory")
    compact_target_bytes: int = _setting(512 << 20, "a segment of this size is merged no more; none gets twice it")
    compact_memory: int = _setting(768 << 20, "memory of a task for the rows that it merges")
    rollup_max_seconds: float = _setting(10.0, "segments to roll up wait so long for others of their windows")
    work_max_attempts: int = _setting(5, "times a merge or rollup is tried before it is set aside")
    work_retry_seconds: float = _setting(10.0, "pause before a failed one is tried again; it doubles each time")
    retention: dict[str, str] = _setting(
        {}, "how long rows are kept, e.g. logs=30d,metrics=15d,metrics.1h=2y; what is not named: for ever"
    )
    raw_retention: str = _setting("", "delete raw objects so long after they were ingested, e.g. 7d; empty: never")
    sweep_seconds: float = _setting(600.0, "pause between two sweeps")
    sweep_grace_seconds: float = _setting(3600.0, "files that no row names, or no row names any more, stay so long")
    mapping_file: str = _setting("", "TOML that names the columns of JSON, CSV and Parquet files; empty: all guessed")
    cache_max_bytes: int = _setting(10 << 30, "size of the query worker's file cache")
    query_memory: str = _setting("2GB", "memory of one sandbox, which runs a piece of a query; DuckDB spills beyond it")
    sandbox_memory: int = _setting(0, "bytes that all sandboxes together may hold; 0: half of the machine's memory")
    query_threads: int = _setting(0, "threads of one sandbox; 0: one per core")
    query_seconds: float = _setting(300.0, "longest run of one query")
    query_max_rows: int = _setting(1_000_000, "most rows of one answer")
    metrics_max_series: int = _setting(200_000, "most series of one PromQL answer or list; more are refused, or cut")
    metrics_max_samples: int = _setting(
        50_000_000, "samples that one PromQL query holds in memory at most, 16 bytes each"
    )
    metrics_cache_bytes: int = _setting(
        512 << 20, "memory of a query worker for samples it has read, 16 bytes each; 0: none are kept"
    )
    query_spool_bytes: int = _setting(4 << 30, "rows of one table that a query over several gathers on disk at most")
    unit_max_bytes: int = _setting(1 << 30, "bytes of segments in one unit of work; less than a worker's cache")
    unit_max_rows: int = _setting(50_000_000, "most rows that one unit of work gives")
    worker_units: int = _setting(0, "units that a worker runs at once, each with query_memory; 0: 2 to 4, by cores")
    result_cache_bytes: int = _setting(64 << 20, "memory for answers that are kept, an eighth of it for one; 0: none")
    result_cache_seconds: float = _setting(300.0, "how long an answer is kept; it is never stale")
    query_spark: str = _setting("on", "on: engine=spark starts a Spark of its own at the first such query; or off")
    query_spark_master: str = _setting("local[*]", "where it runs; a local one has a low priority beside ingest")
    query_spark_memory: str = _setting(
        "1g", "heap of its driver, which answers pass through, and memory of each Python worker"
    )
    query_spark_concurrency: int = _setting(2, "queries that run in it at once; more wait, then are turned away")
    org_concurrent_spark_queries: int = _setting(1, "of these, of one organization, so that others get through")
    query_concurrency: int = _setting(8, "queries that run at once; more wait, then are turned away")
    org_concurrent_queries: int = _setting(0, "of these, of one organization; 0: three quarters, so others get through")
    org_queries_per_second: float = _setting(100.0, "of one organization; `lakerunner orgs limit` sets another for one")
    key_cache_seconds: float = _setting(30.0, "an API key is looked up anew after this: so soon a revoked one dies")
    key_cache_away_seconds: float = _setting(600.0, "known keys are let in so long while PostgreSQL is away")
    request_max_bytes: int = _setting(64 << 20, "largest body of one request, unpacked")
    push_max_seconds: float = _setting(0.2, "pushed requests of so long go into one raw object; 0: one object each")
    push_max_bytes: int = _setting(8 << 20, "a raw object of pushed requests is closed at this size, unpacked")
    push_max_waiting_bytes: int = _setting(256 << 20, "pushed bytes not yet stored; beyond it senders are told to wait")
    push_max_waiting_requests: int = _setting(10_000, "pushed requests not yet stored, in the same way")
    log_level: str = _setting("info", "debug, info, warning or error")
    failpoint: str = _setting("", "for tests: the process dies here, e.g. after-commit:2 (model/failpoint.py)")

    @property
    def store_url(self) -> str:
        return self.store or (self.home.resolve() / "store").as_uri()

    @property
    def cache_directory(self) -> Path:
        return self.home / "cache"


_FIELDS: dict[str, Field[Any]] = {f.name: f for f in fields(Settings)}


def load_settings(environment: Mapping[str, str], overrides: Mapping[str, Any] | None = None) -> Settings:
    """Settings from the config file, the environment and overrides (None values are not given)."""
    values: dict[str, Any] = {}
    config = environment.get(_PREFIX + "CONFIG")
    if config:
        values.update(_read_file(Path(config)))
    if environment.get("DATABASE_URL"):
        values["database_url"] = environment["DATABASE_URL"]
    for variable, text in environment.items():
        if variable.startswith(_PREFIX) and variable != _PREFIX + "CONFIG":
            name = variable[len(_PREFIX) :].lower()
            values[_known(name, variable)] = text
    values.update({name: value for name, value in (overrides or {}).items() if value is not None})
    return replace(Settings(), **{name: _typed(_known(name, name), value) for name, value in values.items()})


def describe() -> list[tuple[str, str, str]]:
    """(name, default, why) of every setting, in order."""
    defaults = Settings()
    return [(name, str(getattr(defaults, name)), f.metadata["why"]) for name, f in _FIELDS.items()]


def _read_file(path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text())
    except OSError as error:
        raise UserError(f"config file {path} cannot be read: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"config file {path} is not TOML: {error}") from error
    return {_known(name, f"{name} in {path}"): value for name, value in values.items()}


def _known(name: str, spelled: str) -> str:
    if name in _FIELDS:
        return name
    near = get_close_matches(name, _FIELDS, n=1)
    hint = f": did you mean {near[0]}?" if near else f": known are {', '.join(_FIELDS)}"
    raise UserError(f"unknown setting {spelled}{hint}")


def _typed(name: str, value: Any) -> Any:
    default = getattr(Settings(), name)
    try:
        if isinstance(default, Routes):
            return _routes(value)
        if isinstance(default, Path):
            return Path(value).expanduser()
        if isinstance(default, dict):
            return _pairs(value) if isinstance(value, str) else {k: str(v) for k, v in value.items()}
        return type(default)(value)
    except (TypeError, ValueError, AttributeError) as error:
        raise UserError(f"setting {name}: {value!r} is not {type(default).__name__}") from error


def _routes(value: Any) -> Routes:
    """Tables of the config file, or their JSON."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise UserError(f"setting routes is not JSON: {error}") from error
    try:
        return Routes.parse(value)
    except UserError as error:
        raise UserError(f"setting routes: {error}") from error


def _pairs(text: str) -> dict[str, str]:
    """`a=1,b=2` as a dict."""
    return dict(part.split("=", 1) for part in text.split(",") if part)
