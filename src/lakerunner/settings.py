"""Settings: the only reader of the environment and of the config file.

Comes in: `LAKERUNNER_<NAME>` variables, a TOML file (`LAKERUNNER_CONFIG`), command-line overrides; the later
wins in the order file, environment, command line. Goes out: one frozen Settings value, where each of its values comes
from, and everything that is wrong, at once. An unknown name is refused with the nearest known one, so a typo never
becomes a default. `DATABASE_URL` is read as `database_url`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from lakerunner.model import setting_check as must_be
from lakerunner.model.errors import UserError
from lakerunner.model.setting_value import (
    Problem,
    SettingValue,
    WrongSettings,
    explain_unknown,
    mask_secrets,
    parse_setting,
)
from lakerunner.model.source import Routes

_PREFIX = "LAKERUNNER_"
CONFIG = _PREFIX + "CONFIG"
_NOT_SETTINGS = (CONFIG, _PREFIX + "API_KEY")  # the key is an option of commands that call the API


def _setting(default: Any, description: str, check: must_be.Check = must_be.anything) -> Any:
    factory = {"default_factory": dict} if default == {} else {"default": default}
    return field(**factory, metadata={"description": description, "check": check})


@dataclass(frozen=True)
class Settings:
    """Each field's description is its documentation: `lakerunner settings` prints them."""

    home: Path = _setting(Path(".lakerunner"), "Directory in which the embedded parts keep their data.")
    store: str = _setting("", "URL of the object store: file, s3, gs, az or memory. Empty: HOME/store.")
    store_options: dict[str, str] = _setting(
        {}, "Options of the object store, for example endpoint=http://minio:9000,allow_http=true."
    )
    store_retries: int = _setting(
        8,
        "How often a failed call of the object store is repeated before it counts as unavailable.",
        must_be.zero_or_more,
    )
    store_retry_seconds: float = _setting(
        30.0, "Longest time that one call of the object store goes on with retries.", must_be.positive
    )
    database_url: str = _setting(
        "",
        "URL of the PostgreSQL server that holds the index. Empty: the embedded server in HOME/postgres.",
        must_be.postgresql_url,
    )
    database_connections: int = _setting(10, "Most connections of one process to PostgreSQL.", must_be.positive)
    bus: str = _setting("postgres", "Message bus: postgres, or kafka://host:port[,host:port].")
    bus_topic_prefix: str = _setting("", "Prefix of every Kafka topic, so that two lakes can share a cluster.")
    spark_master: str = _setting(
        "local[*]",
        "Where Spark runs tasks: local[*], local-cluster[...], spark://host:port, k8s://... or yarn.",
        must_be.spark_master,
    )
    spark_conf: dict[str, str] = _setting({}, "Further settings of Spark, for example spark.executor.memory=4g.")
    spark_driver_memory: str = _setting("1g", "Heap of Spark's driver. No rows pass through it.", must_be.java_memory)
    listen: str = _setting(
        "127.0.0.1:7080",
        "Address of the HTTP API as host:port; port 0 takes a free one. Other hosts than loopback need API keys.",
        must_be.listen_address,
    )
    tls_certificate: str = _setting(
        "",
        "PEM file of the certificate, then its intermediate ones, that every port presents. Empty: ports speak no TLS.",
    )
    tls_key: str = _setting("", "PEM file of the certificate's key, without a passphrase.")
    tls_ca: str = _setting(
        "",
        "PEM file of the CA certificates by which https:// servers are verified: those of --url and of workers. "
        "Empty: those of the system.",
    )
    http_max_connections: int = _setting(
        1000,
        "Most HTTP connections of one port. Beyond it idle ones are closed, or new ones get 503.",
        must_be.positive,
    )
    cors_origins: str = _setting(
        "", "Web origins whose pages may call the API with a key: https://a.example,https://b.example."
    )
    otlp_listen: str = _setting("127.0.0.1", "Host on which the OTLP ports listen. Empty: these ports are off.")
    otlp_grpc_port: int = _setting(4317, "Port of OTLP over gRPC; 0 takes a free one.", must_be.port)
    otlp_http_port: int = _setting(
        4318,
        "Port of OTLP over HTTP; 0 takes a free one. The API's own port takes OTLP over HTTP as well.",
        must_be.port,
    )
    workers: str = _setting(
        "",
        "Query workers: http://host:port,... (or https), dns://name:port or k8s://namespace/service:port. "
        "Empty: in this process.",
    )
    worker_key: str = _setting(
        "", "Secret that query-api sends to query-worker. Required if workers listen on other hosts than loopback."
    )
    routes: Routes = _setting(Routes(), "Further prefixes of raw objects: a list of {prefix, organization, ...}.")
    sqs_queue_url: str = _setting("", "SQS queue that gets the notifications of the bucket. Empty: off.")
    pubsub_subscription: str = _setting(
        "", "Pub/Sub subscription (projects/P/subscriptions/S) that gets the notifications of the bucket. Empty: off."
    )
    pubsub_endpoint: str = _setting(
        "", "Address of a Pub/Sub emulator, which is used without credentials. Empty: Google's."
    )
    azure_queue_url: str = _setting("", "Azure Storage queue to which Event Grid sends notifications. Empty: off.")
    queue_options: dict[str, str] = _setting(
        {}, "Options of the notification queue, for example region=eu-central-1 (docs/formats/notifications.md)."
    )
    lister_seconds: float = _setting(1.0, "Pause between two listings of the raw prefixes.", must_be.positive)
    settle_seconds: float = _setting(
        1.0, "Ignore local files that were changed within this time: they may still be written.", must_be.zero_or_more
    )
    reminder_seconds: float = _setting(
        900.0, "Queue objects or segments again that are still unprocessed after this many seconds.", must_be.positive
    )
    box_max_seconds: float = _setting(
        2.0, "Close a box of raw objects at this age. It bounds the delay of ingest.", must_be.zero_or_more
    )
    box_max_bytes: int = _setting(256 << 20, "Close a box when its raw objects have this size.", must_be.positive)
    box_max_objects: int = _setting(1000, "Close a box when it holds this number of objects.", must_be.positive)
    box_max_held: int = _setting(20_000, "Most messages that a boxer holds in all its open boxes.", must_be.positive)
    box_max_attempts: int = _setting(
        3, "How many workers may die of a box before it is cut in halves.", must_be.positive
    )
    object_max_bytes: int = _setting(
        256 << 20, "Largest raw object, unpacked. Larger ones are set aside.", must_be.positive
    )
    bad_lines_max_share: float = _setting(
        0.5, "Largest share of bad lines in a file of lines. A file with more is set aside.", must_be.share
    )
    task_max_bytes: int = _setting(
        64 << 20, "Most raw bytes, unpacked, from which one segment is made.", must_be.positive
    )
    compact_max_seconds: float = _setting(
        60.0, "How long segments wait for others of their hour before they are merged.", must_be.zero_or_more
    )
    compact_max_segments: int = _setting(
        32, "Most segments of one merge. Each takes a share of its memory.", must_be.positive
    )
    compact_target_bytes: int = _setting(
        512 << 20,
        "Segments of this size are not merged further. No merge makes one of twice the size.",
        must_be.positive,
    )
    compact_memory: int = _setting(
        768 << 20, "Bytes of memory that one task has for the rows it merges.", must_be.positive
    )
    rollup_max_seconds: float = _setting(
        10.0, "How long segments wait for others of their windows before they are rolled up.", must_be.zero_or_more
    )
    work_max_attempts: int = _setting(
        5, "How often a merge or rollup is tried before it is set aside.", must_be.positive
    )
    work_retry_seconds: float = _setting(
        10.0, "Pause before a failed merge or rollup is tried again. It doubles each time.", must_be.zero_or_more
    )
    materialize_history: bool = _setting(
        True, "If false, rules are not evaluated over stored segments, whatever `lakerunner rules backfill` requests."
    )
    materialize_rows_per_second: float = _setting(
        0.0, "Most stored rows a second that rules are evaluated over. 0: no limit.", must_be.zero_or_more
    )
    retention: dict[str, str] = _setting(
        {},
        "How long rows are kept, for example logs=30d,metrics=15d,metrics.1h=2y. What is not named is kept forever.",
        must_be.retention,
    )
    raw_retention: str = _setting(
        "", "Delete raw objects this long after they were ingested, for example 7d. Empty: never."
    )
    sweep_seconds: float = _setting(600.0, "Pause between two sweeps.", must_be.positive)
    sweep_grace_seconds: float = _setting(
        3600.0, "Keep files that the index does not use for this long before deleting them.", must_be.zero_or_more
    )
    mapping_file: str = _setting(
        "", "TOML file that maps columns of JSON, CSV and Parquet files. Empty: all columns are guessed."
    )
    cache_max_bytes: int = _setting(10 << 30, "Size of the query worker's file cache.", must_be.positive)
    query_memory: str = _setting(
        "2GB", "Memory of one sandbox, which runs a part of a query. DuckDB spills to disk beyond it.", must_be.memory
    )
    sandbox_memory: int = _setting(
        0, "Most bytes of memory of all sandboxes together. 0: half of the machine's memory.", must_be.zero_or_more
    )
    query_threads: int = _setting(0, "Threads of one sandbox. 0: one per core.", must_be.zero_or_more)
    query_seconds: float = _setting(300.0, "Longest run of one query.", must_be.zero_or_more)
    query_max_rows: int = _setting(1_000_000, "Most rows of one answer.", must_be.positive)
    metrics_max_series: int = _setting(
        200_000,
        "Most series of one PromQL answer or list. Larger answers are refused, larger lists are cut.",
        must_be.positive,
    )
    metrics_max_samples: int = _setting(
        50_000_000, "Most samples that one PromQL query holds in memory, 16 bytes each.", must_be.positive
    )
    promql_delayed_name_removal: bool = _setting(
        False,
        "If true, PromQL removes metric names when a query ends, as Prometheus does with its feature of this name; "
        "if false at once, as Prometheus does by default.",
    )
    metrics_cache_bytes: int = _setting(
        512 << 20, "Memory of a query worker for samples that it has read, 16 bytes each. 0: off.", must_be.zero_or_more
    )
    query_spool_bytes: int = _setting(
        4 << 30, "Most bytes of one table that a query over several tables gathers on disk.", must_be.positive
    )
    unit_max_bytes: int = _setting(
        1 << 30, "Bytes of segments in one unit of work. It must be less than cache_max_bytes.", must_be.positive
    )
    unit_max_rows: int = _setting(50_000_000, "Most rows that one unit of work returns.", must_be.positive)
    worker_units: int = _setting(
        0,
        "Units that a worker runs at the same time, each with query_memory. 0: 2 to 4, by the number of cores.",
        must_be.zero_or_more,
    )
    result_cache_bytes: int = _setting(
        64 << 20, "Memory for cached answers; one answer takes at most an eighth of it. 0: off.", must_be.zero_or_more
    )
    result_cache_seconds: float = _setting(
        300.0, "How long an answer stays cached. New data ends it earlier, so it is never stale.", must_be.zero_or_more
    )
    query_spark: str = _setting(
        "on",
        "With on, the first query with engine=spark starts a Spark for queries. With off, such queries are refused.",
        must_be.one_of("on", "off"),
    )
    query_spark_master: str = _setting(
        "local[*]",
        "Where the Spark for queries runs. A local one runs with a lower priority than ingest.",
        must_be.spark_master,
    )
    query_spark_memory: str = _setting(
        "1g",
        "Heap of the driver of the Spark for queries, which answers pass through, and memory of each Python worker.",
        must_be.java_memory,
    )
    query_spark_concurrency: int = _setting(
        2, "Queries with engine=spark that run at the same time. Others wait, then get 503.", must_be.positive
    )
    org_concurrent_spark_queries: int = _setting(
        1, "How many of these queries one organization may run at the same time.", must_be.positive
    )
    query_concurrency: int = _setting(
        8, "Queries that run at the same time. Others wait, then get 503.", must_be.positive
    )
    org_concurrent_queries: int = _setting(
        0,
        "How many of these queries one organization may run at the same time. 0: three quarters of them.",
        must_be.zero_or_more,
    )
    org_queries_per_second: float = _setting(
        100.0,
        "Queries per second of one organization. `lakerunner orgs limit` sets another number for one of them.",
        must_be.positive,
    )
    key_cache_seconds: float = _setting(
        30.0,
        "How long an API key is cached. A revoked key stops working after this time at the latest.",
        must_be.zero_or_more,
    )
    key_cache_away_seconds: float = _setting(
        600.0, "How long cached keys stay valid while PostgreSQL is unavailable.", must_be.zero_or_more
    )
    request_max_bytes: int = _setting(64 << 20, "Largest body of one request, unpacked.", must_be.positive)
    push_max_seconds: float = _setting(
        0.2,
        "Pushed requests of this many seconds are stored as one raw object. 0: one object for each request.",
        must_be.zero_or_more,
    )
    push_max_bytes: int = _setting(
        8 << 20, "Close a raw object of pushed requests at this size, unpacked.", must_be.positive
    )
    push_max_waiting_bytes: int = _setting(
        256 << 20, "Most pushed bytes that wait to be stored. Further requests get 429.", must_be.positive
    )
    push_max_waiting_requests: int = _setting(
        10_000, "Most pushed requests that wait to be stored. Further requests get 429.", must_be.positive
    )
    log_level: str = _setting(
        "info",
        "Least important log lines that are written: debug, info, warning or error.",
        must_be.one_of("debug", "info", "warning", "error"),
    )
    failpoint: str = _setting(
        "", "For tests: the process ends itself here, for example after-commit:2 (model/failpoint.py)."
    )

    @property
    def store_url(self) -> str:
        return self.store or (self.home.resolve() / "store").as_uri()

    @property
    def cache_directory(self) -> Path:
        return self.home / "cache"


_FIELDS: dict[str, Field[Any]] = {f.name: f for f in fields(Settings)}
_DEFAULTS = Settings()
# Values of which the first must not be more than the second.
_AT_MOST = (
    ("unit_max_bytes", "cache_max_bytes"),
    ("push_max_bytes", "push_max_waiting_bytes"),
    ("box_max_objects", "box_max_held"),
    ("org_concurrent_queries", "query_concurrency"),
    ("org_concurrent_spark_queries", "query_spark_concurrency"),
)


@dataclass(frozen=True)
class LoadedSettings:
    """What was read. `sources` has the names that are not defaults; a wrong value is not in `settings`."""

    settings: Settings
    sources: Mapping[str, str]
    problems: tuple[Problem, ...] = ()

    def source(self, name: str) -> str:
        return self.sources.get(name, "default")

    def problem(self, name: str, reason: str) -> Problem:
        return Problem(name, mask_secrets(name, getattr(self.settings, name)), self.source(name), reason)


def load_settings(environment: Mapping[str, str], overrides: Mapping[str, Any] | None = None) -> Settings:
    """Return the settings of the config file, the environment and overrides (those that are not None);
    WrongSettings if any of them cannot be used."""
    loaded = read_settings(environment, overrides)
    if loaded.problems:
        raise WrongSettings(loaded.problems)
    return loaded.settings


def read_settings(environment: Mapping[str, str], overrides: Mapping[str, Any] | None = None) -> LoadedSettings:
    """Return the settings, their sources and all that is wrong with them."""
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    problems: list[Problem] = []
    for given in _read_values(environment, overrides or {}):
        if isinstance(given, Problem):
            problems.append(given)
        elif given.name not in _FIELDS:
            problems.append(given.problem(explain_unknown(given.name, _FIELDS)))
        else:
            reason, value = parse_setting(given.value, default_of(given.name), _FIELDS[given.name].metadata["check"])
            if reason:
                problems.append(given.problem(reason))
            else:
                values[given.name], sources[given.name] = value, given.source
    loaded = LoadedSettings(replace(_DEFAULTS, **values), sources)
    return replace(loaded, problems=(*problems, *_contradictions(loaded)))


def setting_names() -> list[str]:
    """Return the names of all settings, in the order of their description."""
    return list(_FIELDS)


def describe_setting(name: str) -> str:
    """Return the description of a setting; UserError with the nearest name if there is no such setting."""
    if name not in _FIELDS:
        raise UserError(f"setting {name!r} {explain_unknown(name, _FIELDS)}")
    return str(_FIELDS[name].metadata["description"])


def default_of(name: str) -> Any:
    return getattr(_DEFAULTS, name)


def variable_of(name: str) -> str:
    """Return the environment variable that sets it."""
    return "DATABASE_URL" if name == "database_url" else _PREFIX + name.upper()


def _read_values(environment: Mapping[str, str], overrides: Mapping[str, Any]) -> Iterator[SettingValue | Problem]:
    """Yield all that is given; of two with one name the later wins."""
    if config := environment.get(CONFIG):
        yield from _read_file(config)
    if url := environment.get("DATABASE_URL"):
        yield SettingValue("database_url", url, "environment variable DATABASE_URL")
    for variable, text in environment.items():
        if variable.startswith(_PREFIX) and variable not in _NOT_SETTINGS:
            yield SettingValue(variable[len(_PREFIX) :].lower(), text, f"environment variable {variable}")
    for name, value in overrides.items():
        if value is not None:
            yield SettingValue(name, value, f"option --{name.replace('_', '-')}")


def _read_file(path: str) -> Iterator[SettingValue | Problem]:
    source = f"environment variable {CONFIG}"
    try:
        values = tomllib.loads(Path(path).read_text())
    except OSError as error:
        yield Problem("config", path, source, f"cannot be read: {error.strerror}")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        yield Problem("config", path, source, f"is not TOML: {error}")
    else:
        yield from (SettingValue(name, value, f"config file {path}") for name, value in values.items())


def _contradictions(loaded: LoadedSettings) -> Iterator[Problem]:
    for less, more in _AT_MOST:
        bound = getattr(loaded.settings, more)
        if getattr(loaded.settings, less) > bound:
            yield loaded.problem(less, f"is more than {more}, which is {bound}: lower it, or raise {more}")
    for one, other in (("tls_certificate", "tls_key"), ("tls_key", "tls_certificate")):
        if getattr(loaded.settings, one) and not getattr(loaded.settings, other):
            yield loaded.problem(other, f"is missing: {one} is set, and TLS needs both")
