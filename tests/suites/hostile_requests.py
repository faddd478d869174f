"""Requests to every endpoint, drawn so that they name what is another organization's wherever a name can stand."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from hypothesis import strategies as st

from lakerunner.model.metric_rules.metric_rule import MetricRule
from suites.requests import request_of
from suites.rules import rule
from suites.tenants import DAY, ROLES, SHARED_KEY, Tenant

HOSTILE = ("' OR '1'='1", "x' UNION ALL SELECT * FROM logs --", "%", "", ".*", "*", "${x}", "../..", "\0", "ключ")
COLUMNS = ("service_name", "collector", "organization_id", "scope_name")
TABLES = {"logs": ("message", "trace_id"), "metrics": ("metric_name", "unit"), "spans": ("name", "trace_id")}
FORMATS = ("json", "ndjson", "csv", "arrow", "parquet", "sse")
OPEN = ("/livez", "/readyz", "/metrics", "/openapi.json")


@dataclass(frozen=True)
class Sent:
    """`steady`: the answer to it is a matter of what the caller has and has asked before, and of no clock."""

    method: str
    path: str
    body: Any = None
    data: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    query: dict[str, str] = field(default_factory=dict)
    steady: bool = True

    @property
    def text(self) -> str:
        """All that it says, in lower case."""
        said = (self.path, json.dumps(self.body, ensure_ascii=False), (self.data or b"").decode("latin-1"))
        return "\n".join((*said, *self.headers.values(), *self.query.values())).lower()


@lru_cache
def requests_about(other: Tenant, own: Tenant) -> st.SearchStrategy[Sent]:
    """What `own` may send."""
    words = st.sampled_from(sorted(other.markers)) | st.sampled_from(sorted(own.markers)) | st.sampled_from(HOSTILE)
    sql, native, promql = _sql(words, other), _tags(words), _promql(words)
    kinds = [sql, sql, sql, native, native, promql, promql, promql]
    kinds += [_keys(other), _rules(other), _objects(words), _doors(other, own), _damaged(words)]
    drawn = st.sampled_from(kinds).flatmap(lambda kind: kind)
    return st.builds(lambda sent, more: replace(sent, headers=more | sent.headers), drawn, _headers(other))


def _headers(other: Tenant) -> st.SearchStrategy[dict[str, str]]:
    """Names by which other systems choose a tenant; here they choose nothing."""
    names = st.sampled_from(["x-scope-orgid", "x-organization-id", "x-lakerunner-organization", "cookie"])
    values = st.sampled_from([str(other.organization.id), other.organization.name])
    return st.dictionaries(names, values, max_size=1)


# SQL


def _literal(word: str) -> str:
    return "'" + word.replace("\0", "").replace("'", "''") + "'"


def _value(table: str, words: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    maps = st.sampled_from(["attributes", "resource_attrs", "scope_attrs"])
    keys = words.filter(lambda word: "\0" not in word)
    of_map = st.builds(lambda name, key: f"{name}[{_literal(key)}]", maps, keys)
    quoted = keys.filter(bool).map(lambda key: '"' + key.replace('"', '""') + '"')
    return st.sampled_from((*COLUMNS, *TABLES[table])) | of_map | quoted


def _condition(table: str, words: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    signs = st.sampled_from(["=", "<>", "LIKE", "ILIKE", ">=", "IS DISTINCT FROM"])
    compared = st.builds(
        lambda value, sign, word: f"{value} {sign} {_literal(word)}", _value(table, words), signs, words
    )
    fixed = st.sampled_from(["TRUE", "1 = 1 OR organization_id <> ''", "$1 <> service_name", "collector ~ $1"])
    searched = words.map(lambda word: f"search({_literal(word)})")
    return compared | fixed | searched if table == "logs" else compared | fixed


def _select(table: str, words: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    shown = st.one_of(
        _value(table, words).map(lambda value: f"SELECT {value} AS a, count(*) AS n, min(service_name) AS s"),
        st.sampled_from(
            [
                "SELECT *",
                "SELECT count(*), min(service_name), max(organization_id), max(collector)",
                "SELECT count(DISTINCT organization_id), approx_count_distinct(service_name)",
                "SELECT DISTINCT organization_id, collector, service_name",
                "SELECT map_keys(attributes), map_values(resource_attrs)",
                "SELECT CAST(service_name AS INTEGER)",
                "SELECT error(service_name)",
            ]
        ),
    )
    conditions = st.lists(_condition(table, words), max_size=2)

    def select(start: str, where: list[str]) -> str:
        met = f" WHERE {' AND '.join(f'({one})' for one in where)}" if where else ""
        return f"{start} FROM {table}{met}{' GROUP BY ALL' if ' AS a,' in start else ''}"

    return st.builds(select, shown, conditions)


def _statements(words: st.SearchStrategy[str], other: Tenant) -> st.SearchStrategy[str]:
    selects = st.sampled_from(sorted(TABLES)).flatmap(lambda table: _select(table, words))
    paths = st.sampled_from(sorted(other.segments[1]))
    beyond = st.sampled_from(
        [
            "SELECT * FROM read_parquet({})",
            "SELECT * FROM {}",
            "SELECT * FROM glob({})",
            "SELECT * FROM read_text({})",
            "SELECT * FROM scan_1 WHERE {} <> ''",
            "SELECT * FROM information_schema.tables WHERE table_name <> {}",
            "SELECT * FROM duckdb_settings() WHERE name <> {}",
            "SELECT * FROM lrdb.segments WHERE path = {}",
            "ATTACH {} AS b",
            "COPY logs TO {}",
            "SET VARIABLE organization = {}",
            "SELECT getenv({})",
        ]
    )
    count = "SELECT count(*) AS n FROM"
    return st.one_of(
        selects,
        selects.map(lambda sql: f"WITH found AS ({sql}) SELECT * FROM found"),
        st.builds(lambda one, two: f"{count} ({one}) UNION ALL {count} ({two})", selects, selects),
        selects.map(lambda sql: f"SELECT a.n, b.n FROM ({count} ({sql})) a, ({count} logs) b"),
        st.builds(lambda sql, path: sql.format(_literal(path)), beyond, paths | words),
    )


def _sql(words: st.SearchStrategy[str], other: Tenant) -> st.SearchStrategy[Sent]:
    def sent(before: str, statement: str, word: str, format_: str, partial: bool) -> Sent:
        body: dict[str, Any] = {"query": before + statement, "format": format_}
        if "$1" in statement:
            body["parameters"] = [word]
        if partial and format_ in ("json", "sse"):
            body["partial"] = True
        return Sent("POST", "/api/v1/sql", body)

    before = st.sampled_from(["", "", "", "EXPLAIN ", "EXPLAIN ANALYZE "])
    return st.builds(sent, before, _statements(words, other), words, st.sampled_from(FORMATS), st.booleans())


# The native API


def _tags(words: st.SearchStrategy[str]) -> st.SearchStrategy[Sent]:
    paths = st.sampled_from([f"/api/v1/{table}/{what}" for table in TABLES for what in ("query", "tags", "tagvalues")])
    names = words | st.sampled_from(["service_name", "collector", "tier", "trace_id", "organization_id"])
    quoted = words.map(json.dumps)
    names_in_q = words.map(lambda word: word.replace(".", "_")) | st.sampled_from(["service_name", "tier"])
    selectors = st.builds(
        lambda name, sign, word: f"{{{name}{sign}{word}}}", names_in_q, st.sampled_from(["=", "!=", "=~", "!~"]), quoted
    )

    def sent(path: str, name: str, given: dict[str, str]) -> Sent:
        return Sent("POST", path, DAY | given, query={"tagName": name} if path.endswith("tagvalues") else {})

    def counted(metric: str, labels: str) -> Sent:
        query = {"metric": metric, "labels": labels, "start": DAY["s"], "end": DAY["e"], "step": "1h"}
        return Sent("GET", "/api/v1/metrics/cardinality", query=query, steady=False)

    given = st.fixed_dictionaries({}, optional={"q": selectors, "metric": words, "orgId": words})
    return st.one_of(
        st.builds(counted, words, st.sampled_from(["0", "1"])),
        st.builds(sent, paths, names, given),
        st.builds(sent, st.just("/api/v1/metrics/metadata"), names, given),
        st.sampled_from([Sent("GET", f"/api/v1/{name}") for name in ("ping", "features", "sql/tables")]),
    )


# PromQL


def _selectors(words: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Of a metric or label by its name or value; of everything."""
    quoted = words.map(lambda word: json.dumps(word.replace("\0", ""), ensure_ascii=False))
    names = st.sampled_from(["job", "__name__", "tier", "instance", "organization_id", "collector"]) | quoted
    signs = st.sampled_from(["=", "!=", "=~", "!~"])
    matchers = st.builds(lambda name, sign, value: f"{name}{sign}{value}", names, signs, quoted)
    several = st.lists(matchers, min_size=1, max_size=2).map(lambda found: "{" + ",".join(found) + "}")
    plain = words.map(lambda word: re.sub(r"\W", "_", word) or "served")
    fixed = st.sampled_from(["served_total", '{__name__=~".+"}', "target_info", '{job!=""}', '{"served_total"}'])
    return st.one_of(several, plain, quoted.map(lambda name: f"{{{name}}}"), fixed)


def _promql_texts(words: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    shapes = [
        "{0}",
        "sum by (job, tier) ({0})",
        "count({0}) or {1}",
        "count_values('x', {0}) unless {1}",
        "{0} * on () group_left (job) {1}",
        "rate({0}[1h])",
        "last_over_time({0}[1d]) offset -1h",
        "max_over_time({0}[1h:1m])",
        "label_join({0}, 'all', ' ', 'job', 'tier', '__name__')",
        "info({0}, {1})",
        "absent({0})",
        "{0}[1d]",
        "topk(5, {0}) @ 1704070800",
        "sum({0}",
    ]
    return st.builds(
        lambda shape, one, two: shape.format(one, two), st.sampled_from(shapes), _selectors(words), _selectors(words)
    )


def _promql(words: st.SearchStrategy[str]) -> st.SearchStrategy[Sent]:
    """At fixed times: an answer says when it was asked for."""
    texts, root = _promql_texts(words), "/prometheus/api/v1"
    times = {"start": "1704067200", "end": "1704074400"}
    labels = words.map(lambda word: re.sub(r"\W", "_", word) or "job") | st.sampled_from(["job", "__name__", "tier"])

    def listed(path: str, selector: str | None) -> Sent:
        return Sent("GET", f"{root}/{path}", query=times | ({"match[]": selector} if selector is not None else {}))

    def ranged(text: str, partial: str) -> Sent:
        given = {"query": text, "step": "600", "partial_response": partial, **times}
        return Sent("GET", f"{root}/query_range", query=given)

    paths = st.sampled_from(["series", "labels"]) | labels.map(lambda name: f"label/{name}/values")
    checked = st.sampled_from(["query_exemplars", "format_query", "parse_query"])
    return st.one_of(
        texts.map(lambda text: Sent("GET", f"{root}/query", query={"query": text, "time": "1704070800"})),
        st.builds(ranged, texts, st.sampled_from(["true", "false", ""])),
        st.builds(listed, paths, st.none() | _selectors(words)),
        st.builds(lambda path, text: Sent("GET", f"{root}/{path}", query=times | {"query": text}), checked, texts),
        words.map(lambda word: Sent("GET", f"{root}/metadata", query={"metric": word})),
        texts.map(lambda text: Sent("POST", "/api/v1/metrics/query", DAY | {"q": text, "step": "10m"})),
    )


# Keys, objects, and doors


def _keys(other: Tenant) -> st.SearchStrategy[Sent]:
    """The other's keys by name, and one that has a namesake there; what is made is never named after the other."""
    named = st.sampled_from([SHARED_KEY, *(other.word(role) for role in ROLES)])
    new = st.sampled_from([SHARED_KEY, "new-1", "new-2", "%", "' OR 1=1 --", ""])
    return st.one_of(
        st.just(Sent("GET", "/api/v1/keys")),
        new.map(lambda name: Sent("POST", "/api/v1/keys", {"name": name, "roles": ["admin"]})),
        named.map(lambda name: Sent("POST", f"/api/v1/keys/{name}/rotate", {"grace": "1h"})),
        named.map(lambda name: Sent("DELETE", f"/api/v1/keys/{name}")),
    )


def _rules(other: Tenant) -> st.SearchStrategy[Sent]:
    """Rules by the names of the other's, which make its metrics."""
    root = "/api/v1/rules/materialization"
    theirs = [other.word(what).replace(".", "_") for what in ("metric", "made")]
    made = st.sampled_from([*theirs, "served", "new"])
    drawn = st.builds(rule, st.sampled_from(["a", "b", other.word("rule")]), metric=made).map(MetricRule.to_json)
    paths = st.sampled_from([other.word("rule"), "a", "%27%20OR%201%3D1%20--"]).map(lambda name: f"{root}/{name}")
    return st.one_of(
        st.just(Sent("GET", root)),
        drawn.map(lambda body: Sent("PUT", f"{root}/{body['name']}", body)),
        st.lists(drawn, max_size=3).map(
            lambda bodies: Sent("POST", f"{root}/apply", {"rules": bodies}, query={"dry_run": "true"})
        ),
        paths.map(lambda path: Sent("GET", path)),
        paths.map(lambda path: Sent("DELETE", path)),
        paths.map(lambda path: Sent("POST", f"{path}/disable")),
    )


def _objects(words: st.SearchStrategy[str]) -> st.SearchStrategy[Sent]:
    states = st.sampled_from(["failed", "done", "seen"]) | words
    keyed = st.fixed_dictionaries({"key": words}, optional={"org": words})
    listed = st.fixed_dictionaries({}, optional={"state": states, "limit": st.just("10"), "key": words, "org": words})
    return st.one_of(
        listed.map(lambda query: Sent("GET", "/api/v1/objects", query=query, steady=False)),
        st.just(Sent("POST", "/api/v1/objects/retry", steady=False)),
        keyed.map(lambda query: Sent("GET", "/api/v1/objects/rejects", query=query, steady=False)),
        keyed.map(lambda query: Sent("POST", "/api/v1/objects/dismiss", query=query, steady=False)),
        st.sampled_from(OPEN).map(lambda path: Sent("GET", path, steady=False)),
    )


def _doors(other: Tenant, own: Tenant) -> st.SearchStrategy[Sent]:
    keys = [tenant.raw(signal, 1).source.key for tenant in (other, own) for signal in ("logs", "traces")]
    keys += [f"otel-raw/{other.organization.name}/{other.collector}/logs.binpb", *sorted(other.segments[1])]

    def event(key: str) -> Sent:
        record = {"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": "local"}, "object": {"key": key}}}
        return Sent("POST", "/api/v1/events/s3", {"Records": [record]}, steady=False)

    def push(service: str) -> Sent:
        data, kind = request_of(f"{own.name} pushed", service=service), "application/x-protobuf"
        return Sent("POST", "/v1/logs", data=data, headers={"content-type": kind}, steady=False)

    return st.sampled_from(keys).map(event) | st.sampled_from([other.word("svc"), own.word("svc")]).map(push)


def _damaged(words: st.SearchStrategy[str]) -> st.SearchStrategy[Sent]:
    paths = ["/api/v1/sql", "/api/v1/logs/tags", "/api/v1/metrics/metadata", "/api/v1/keys", "/api/v1/events/s3"]
    paths += ["/api/v1/rules/materialization/a", "/api/v1/rules/materialization/apply"]
    paths += ["/v1/logs", "/v1/traces", "/loki/api/v1/push", "/api/v1/write", "/api/v1/nothing"]
    text = words.map(lambda word: json.dumps({"query": f"SELECT {_literal(word)}", "q": "{", "s": word}).encode())
    cut = st.builds(lambda data, at: data[: len(data) * at // 100], text, st.integers(0, 99))
    methods = st.sampled_from(["POST", "POST", "POST", "PUT", "GET", "DELETE"])
    bodies = cut | st.binary(max_size=40)
    kinds = st.sampled_from(["application/json", "application/json", "text/plain"])
    return st.builds(
        lambda method, path, data, kind: Sent(method, path, data=data, headers={"content-type": kind}),
        methods,
        st.sampled_from(paths),
        bodies,
        kinds,
    )
