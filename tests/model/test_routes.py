"""A key's path says whose it is: prefixes from settings and the defaults, the most specific one decides."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.model.errors import UserError
from lakerunner.model.organization import DEFAULT_ORGANIZATION
from lakerunner.model.source import ROUTES_MAX, Prefix, Route, Routes
from lakerunner.settings import load_settings

ORG = str(DEFAULT_ORGANIZATION.id)


@pytest.mark.parametrize(
    ("key", "route"),
    [
        ("otel-raw/acme/edge/logs_1.binpb.gz", Route("acme", "edge", "logs")),
        ("otel-raw/acme/edge/2025/12/24/anything.binpb", Route("acme", "edge", "logs")),
        ("otel-raw/acme/edge/otel-metrics.binpb.gz", Route("acme", "edge", "metrics")),
        ("otel-raw/acme/edge/traces_415889201.binpb.gz", Route("acme", "edge", "traces")),
        ("otel-raw/acme/edge/metricsystem.binpb", Route("acme", "edge", "logs")),
        (f"otel-raw/{ORG}/otlp/ab/metrics_ab12.binpb.gz", Route(ORG, "otlp", "metrics")),
        ("otel-raw/logs/x.binpb", Route(ORG, "default", "logs")),
        ("otel-raw/metrics/x.binpb", Route(ORG, "default", "metrics")),
        ("otel-raw/traces/2025/12/logs.binpb", Route(ORG, "default", "traces")),
        ("otel-raw/logs/edge/metrics.binpb", Route(ORG, "default", "logs")),
        ("otel-raw/logsmith/edge/x.binpb", Route("logsmith", "edge", "logs")),
        ("logs-raw/x.binpb", Route(ORG, "default", "logs")),
        ("metrics-raw/a/b/c/x.binpb", Route(ORG, "default", "metrics")),
        ("traces-raw/metrics.binpb", Route(ORG, "default", "traces")),
        ("logs-raw/", None),
        ("logs-raw", None),
        ("old-logs-raw/x.binpb", None),
        (
            "otel-raw/acme/spans.jsonl",
            Route(
                "acme",
                "",
                "traces",
                "'otel-raw/acme/spans.jsonl' is not in the folder of a collector: move it, for example to "
                "'otel-raw/acme/files/spans.jsonl'",
            ),
        ),
        (
            "otel-raw/x.csv",
            Route(
                "",
                "",
                "logs",
                "'otel-raw/x.csv' is not in the folders of an organization and a collector: move it, for example to "
                "'otel-raw/default/files/x.csv'",
            ),
        ),
        ("otel-raw/.hidden", None),
        ("otel-raw/acme/.hidden", None),
        ("otel-raw/acme/", None),
        ("otel-raw/acme/edge/", None),
        ("otel-raw/acme/edge/.hidden", None),
        ("otel-raw/a b/edge/x.binpb", None),
        ("otel-raw//edge/x.binpb", None),
        ("otel-raw/acme//x.binpb", None),
        ("db/acme/edge/20250101/logs/00/tbl_x.parquet", None),
        ("", None),
    ],
)
def test_what_the_defaults_say(key: str, route: Route | None) -> None:
    assert Routes().route_of(key) == route


CONFIGURED = Routes(
    (
        Prefix("exports/", organization="acme"),
        Prefix("exports/eu/", organization="acme-eu", collector="gate", signal="traces"),
        Prefix("exports/{collector}/", organization="by-collector"),
        Prefix("tenants/{org}/{signal}/{collector}/"),
        Prefix("otel-raw/logs/edge/", organization="logs", collector="edge"),
        Prefix("logs-raw/", organization="moved", signal="logs"),
    )
)


@pytest.mark.parametrize(
    ("key", "route"),
    [
        ("exports/x_spans.json", Route("acme", "default", "traces")),
        ("exports/us/x.binpb", Route("by-collector", "us", "logs")),
        ("exports/eu/x.binpb", Route("acme-eu", "gate", "traces")),
        ("exports/eu/deeper/x.binpb", Route("acme-eu", "gate", "traces")),
        ("tenants/a/metrics/b/x.binpb", Route("a", "b", "metrics")),
        ("tenants/a/profiles/b/x.binpb", None),
        ("otel-raw/logs/edge/x.binpb", Route("logs", "edge", "logs")),
        ("otel-raw/logs/other/x.binpb", Route(ORG, "default", "logs")),
        ("logs-raw/x.binpb", Route("moved", "default", "logs")),
    ],
)
def test_the_most_specific_prefix_decides(key: str, route: Route | None) -> None:
    assert CONFIGURED.route_of(key) == route


def test_what_a_listing_covers() -> None:
    assert Routes().roots == ("logs-raw/", "metrics-raw/", "otel-raw/", "traces-raw/")
    assert CONFIGURED.roots == ("exports/", "logs-raw/", "metrics-raw/", "otel-raw/", "tenants/", "traces-raw/")
    assert Routes((Prefix("{org}/{collector}/"),)).roots == ("",)


def test_our_own_segments_are_never_raw() -> None:
    everything = Routes((Prefix("{org}/{collector}/"),))
    assert everything.route_of("db/acme/x.parquet") is None
    assert everything.route_of("acme/edge/x.binpb") == Route("acme", "edge", "logs")


@given(st.permutations(CONFIGURED.entries), st.text("abelogsx/.-", max_size=20).map(lambda tail: f"exports/{tail}"))
def test_the_order_of_entries_does_not_matter(entries: list[Prefix], key: str) -> None:
    assert Routes(tuple(entries)).route_of(key) == CONFIGURED.route_of(key)


@given(st.text(), st.text(), st.text())
def test_any_text_is_a_route_or_none(org: str, collector: str, name: str) -> None:
    for key in (org, f"otel-raw/{org}/{collector}/{name}", f"otel-raw/{name}", f"logs-raw/{org}/{name}"):
        route = CONFIGURED.route_of(key)
        assert route is None or route.signal in ("logs", "metrics", "traces")


def test_routes_come_from_the_config_file_and_from_json(tmp_path: Path) -> None:
    config = tmp_path / "lake.toml"
    config.write_text('[[routes]]\nprefix = "exports/{collector}/"\norganization = "acme"\nsignal = "logs"\n')
    entry = {"prefix": "exports/{collector}/", "organization": "acme", "signal": "logs"}
    expected = Routes((Prefix("exports/{collector}/", organization="acme", signal="logs"),))
    assert load_settings({"LAKERUNNER_CONFIG": str(config)}).routes == expected
    assert load_settings({"LAKERUNNER_ROUTES": json.dumps([entry])}).routes == expected
    assert load_settings({}).routes == Routes()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "routes = .* not JSON"),
        ("{}", "cannot be used: it must be a list of tables"),
        ('["a/"]', 'cannot be used: entry 1 is not a table with a "prefix"'),
        ('[{"prefix": "a/"}, {"prefix": "b"}]', r"entry 2 \('b'\): prefix must end with '/'"),
        ('[{"prefix": "/b/"}]', r"entry 1 \('/b/'\): prefix must end with '/' and have no empty part"),
        ('[{"prefix": "/"}]', r"entry 1 \('/'\): prefix must end"),
        ('[{"prefix": "db/x/"}]', r"entry 1 \('db/x/'\): prefix db/ is reserved for segments"),
        ('[{"prefix": "a/{team}/"}]', r"'\{team\}' is not a placeholder: use one of \{org\}"),
        ('[{"prefix": "a/x-{org}/"}]', r"'x-\{org\}' is not a placeholder"),
        ('[{"prefix": "a/{org}/{org}/"}]', "placeholder organization appears twice"),
        ('[{"prefix": "a/{org}/", "organization": "b"}]', "placeholder organization appears twice"),
        ('[{"prefix": "a/", "signal": "profiles"}]', "unknown signal 'profiles': use one of logs, metrics, traces"),
        ('[{"prefix": "a/", "collector": "x y"}]', r"entry 1 \('a/'\): collector name 'x y' is invalid"),
        ('[{"prefix": "a/", "colector": "x"}]', r"entry 1 \('a/'\) has an unknown field 'colector'"),
        ('[{"prefix": "a/", "signal": 1}]', "all values must be strings"),
        ('[{"prefix": "a/"}, {"prefix": "a/"}]', r"entry 2 \('a/'\) can never match: an earlier"),
        ('[{"prefix": "otel-raw/{collector}/{org}/"}]', "can never match: pushed requests are stored there"),
    ],
)
def test_a_bad_entry_is_named(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_settings({"LAKERUNNER_ROUTES": text})


def test_routes_are_bounded() -> None:
    entries = tuple(Prefix(f"p{number}/") for number in range(ROUTES_MAX + 1))
    assert Routes(entries[1:]).route_of("p1/x") is not None
    with pytest.raises(UserError, match="101 entries, the limit is 100"):
        Routes(entries)
