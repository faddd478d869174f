"""Clients of Prometheus that know nothing of us: the calls of Grafana's Prometheus data source, promtool; and a real
Prometheus, whose answers to the same requests are ours to the last byte."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from api.prometheus.test_prometheus_api import BAD, NOW, RANGE, UP
from api.prometheus.test_prometheus_samples import NATIVE, PLAIN, UTF8, lake_at
from conformance.peer import prometheus, write
from conformance.script import Sample, State
from lakerunner.api.formats.series_text import warm
from lakerunner.model.labels import NAME
from lakerunner.model.organization import DEFAULT_ORGANIZATION
from servers.peers import peer, run_peer
from suites.grafana import Grafana
from suites.metrics_lake import MemoryLake, metrics_server, sample_lake


@pytest.fixture(scope="module")
def root() -> Iterator[str]:
    """Where a data source is pointed to."""
    warm()
    with metrics_server(sample_lake(NOW), NOW * 1_000_000, keys={"secret": DEFAULT_ORGANIZATION}) as url:
        yield f"{url}/prometheus"


@pytest.fixture
def grafana(root: str) -> Grafana:
    return Grafana(root)


def test_grafana_saves_and_tests_a_data_source(grafana: Grafana) -> None:
    assert grafana.instant("1+1", NOW / 1000)["result"] == [NOW / 1000, "2"]
    build = grafana.resource("GET", "/api/v1/status/buildinfo", {})
    assert [int(part) for part in build["version"].split(".")] == [3, 15, 0]
    assert "features" not in build  # which would say that rules can be written here, as with Mimir
    assert grafana.resource("GET", "/api/v1/rules", {}) == {"groups": []}


def test_grafana_fills_its_editor(grafana: Grafana) -> None:
    within = {"start": str(NOW // 1000 - 3600), "end": str(NOW // 1000)}
    names = grafana.resource("GET", "/api/v1/label/__name__/values", {**within, "limit": "40000"})
    assert names == ["http.size", "http_requests_total", "up"]
    some = grafana.resource(
        "GET", "/api/v1/label/__name__/values", {**within, "match[]": '{__name__=~".*http.*"}', "limit": "100"}
    )
    assert some == ["http.size", "http_requests_total"]
    labels = grafana.resource("POST", "/api/v1/labels", {**within, "match[]": 'http_requests_total{job="cart"}'})
    assert labels == ["__name__", "code", "instance", "job"]
    values = grafana.resource(
        "GET", "/api/v1/label/code/values", {**within, "match[]": 'http_requests_total{job="cart"}'}
    )
    assert values == ["200", "500"]
    assert grafana.resource("GET", "/api/v1/label/U__k8s_2e_pod/values", within) == ["a"]
    assert grafana.resource("POST", "/api/v1/series", {**within, "match[]": "up", "limit": "40000"}) == UP
    metadata = grafana.resource("GET", "/api/v1/metadata", {"limit": "40000"})
    assert metadata["http_requests_total"] == [{"type": "counter", "help": "Requests.", "unit": ""}]
    found = grafana.resource("POST", "/api/v1/query_exemplars", {**within, "query": "up"})
    assert found == []


def test_grafana_draws_a_panel(grafana: Grafana) -> None:
    """Times are aligned to the step, instants come for tables and variables."""
    matrix = grafana.range("sum(rate(http_requests_total[1m0s])) by (job)", NOW // 1000 - 300, NOW // 1000, 15)
    assert matrix["resultType"] == "matrix"
    assert [len(series["values"]) for series in matrix["result"]] == [21, 21]
    vector = grafana.instant("topk(1, http_requests_total)", NOW / 1000)
    assert [row["metric"]["job"] for row in vector["result"]] == ["cart"]
    series = grafana.resource("GET", "/api/v1/series", {"match[]": 'http_requests_total{code="500"}'})
    assert [labels["job"] for labels in series] == ["cart", "pay"]


def test_a_wrong_key_is_told_to_grafana(root: str) -> None:
    response = httpx.post(f"{root}/api/v1/query", data={"query": "1+1"}, auth=("any", "wrong"))
    assert (response.status_code, response.json()["status"]) == (401, "error")


@pytest.fixture(scope="module")
def served_now() -> Iterator[str]:
    """promtool asks for the present."""
    peer("promtool")
    warm()
    now = int(time.time()) // 15 * 15_000
    with metrics_server(sample_lake(now), now * 1_000_000) as url:
        yield f"{url}/prometheus"


def test_promtool_asks(served_now: str) -> None:
    now = int(time.time())
    instant = json.loads(run_peer("promtool", "query", "instant", "-o", "json", served_now, "up"))
    assert [(row["metric"], row["value"][1]) for row in instant] == [(labels, "1") for labels in UP]
    ranged = run_peer(
        "promtool",
        "query",
        "range",
        "-o",
        "json",
        f"--start={now - 60}",
        f"--end={now}",
        "--step=30s",
        served_now,
        "up * 2",
    )
    assert [{value for _, value in series["values"]} for series in json.loads(ranged)] == [{"2"}, {"2"}]
    assert run_peer("promtool", "query", "labels", served_now, "job").split() == ["cart", "pay"]
    listed = run_peer("promtool", "query", "series", "--match=up", served_now)
    assert listed.splitlines() == [
        '{__name__="up", instance="cart-1:80", job="cart"}',
        '{__name__="up", instance="pay-1:80", job="pay"}',
    ]
    for what in ("healthy", "ready"):
        run_peer("promtool", "check", what, f"--url={served_now}")


def test_promtool_shows_our_errors(served_now: str) -> None:
    done = subprocess.run(
        [peer("promtool"), "query", "instant", served_now, "sum("],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert 'bad_data: invalid parameter "query": 1:5: parse error: unclosed left parenthesis' in done.stderr


SAME = [
    ("query", {"query": "1", "time": "-5.0005"}),
    ("query", {"query": "vector(1) / 3", "time": "12.0065"}),
    ("query", {"query": "'x'", "time": "1"}),
    ("query", {"query": "vector(1e21) or vector(-0.0000001)", "time": "1"}),
    ("query", {"query": "a * on () group_left b", "time": "1"}),
    ("query", {"query": "vector(NaN)", "time": "2024-05-01T12:00:00.123456789+02:00", "limit": "1"}),
    ("query_range", {**RANGE, "query": "1", "step": "1h"}),
    ("query_range", {"query": "time() / 7", "start": "1.2345", "end": "9", "step": "0.7"}),
    ("query_range", {"query": "label_replace(vector(1), 'a', '<&>\"', '', '')", "start": "1", "end": "2", "step": "1"}),
    ("query", {"query": "up", "limit": "x"}),
    ("query", {"query": "histogram_quantile(2, vector(1))", "time": "1"}),
    ("label/U__a_zz_/values", {}),
    ("labels", {"start": "2", "end": "1"}),
    ("metadata", {"limit": "x"}),
    ("status/tsdb", {"limit": "0"}),
    ("status/tsdb", {"limit": "x"}),
    ("status/tsdb", {"limit": "10001"}),
    ("format_query", {"query": "sum(a)by(b)+1"}),
    ("series", {"match[]": "nothing"}),
]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A real Prometheus and ours, both empty."""
    warm()
    work: Path = tmp_path_factory.mktemp("peer") / "prometheus"
    with prometheus(work) as theirs, metrics_server(MemoryLake(), NOW * 1_000_000) as ours:
        yield f"{theirs}/api/v1", f"{ours}/prometheus/api/v1"


@pytest.mark.parametrize(("path", "given"), [*((path, given) for path, given, _ in BAD), *SAME])
def test_a_real_prometheus_answers_the_same(both: tuple[str, str], path: str, given: dict[str, str]) -> None:
    theirs, ours = (httpx.get(f"{base}/{path}", params=given, timeout=60) for base in both)
    assert (ours.status_code, _in_order(ours)) == (theirs.status_code, _in_order(theirs))


@pytest.mark.parametrize("path", ["targets", "targets/metadata", "scrape_pools", "rules", "alerts", "alertmanagers"])
def test_what_is_not_there_has_the_form_of_a_real_prometheus(both: tuple[str, str], path: str) -> None:
    theirs, ours = (httpx.get(f"{base}/{path}").json() for base in both)
    assert len(ours.pop("infos")) == 1
    assert ours == theirs


@pytest.fixture(scope="module")
def both_filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A real Prometheus and ours with the same samples, of just now."""
    warm()
    now = int(time.time() * 1000)
    lake, work = lake_at(now), tmp_path_factory.mktemp("filled")
    lake.add({NAME: "pure", "instance": "i"}, [(now - 20_000, NATIVE)])
    series = {
        labels: tuple(Sample(at, value) for at, value in points)
        for labels, points in lake.series_of[DEFAULT_ORGANIZATION.id].items()
    }
    with prometheus(work / "theirs") as theirs, metrics_server(lake, now * 1_000_000) as ours:
        write(theirs, State(work, 0, series))
        yield theirs, f"{ours}/prometheus"


@pytest.mark.parametrize("headers", [PLAIN, UTF8], ids=["underscores", "utf-8"])
def test_federation_is_that_of_a_real_prometheus(both_filled: tuple[str, str], headers: dict[str, str]) -> None:
    given = {
        "match[]": ['{__name__=~".+", __name__!="pure"}', "up"]
    }  # of several histograms it writes the last for all
    theirs, ours = (httpx.get(f"{base}/federate", params=given, headers=headers) for base in both_filled)
    assert ours.text == theirs.text
    assert ours.headers["content-type"] == theirs.headers["content-type"]


def test_the_head_is_counted_as_by_a_real_prometheus(both_filled: tuple[str, str]) -> None:
    theirs, ours = (httpx.get(f"{base}/api/v1/status/tsdb?limit=100").json()["data"] for base in both_filled)
    heads = [one.pop("headStats") for one in (theirs, ours)]
    assert heads[0]["numSeries"] == heads[1]["numSeries"]
    assert heads[0]["numLabelPairs"] == heads[1]["numLabelPairs"]
    by_size = [
        {name: sorted(rows, key=lambda row: (-row["value"], row["name"])) for name, rows in one.items()}
        for one in (theirs, ours)
    ]
    assert by_size[0] == by_size[1]


def test_a_real_prometheus_reads_from_us(both_filled: tuple[str, str], tmp_path: Path) -> None:
    """But for series of numbers and histograms: of those its remote-read client passes over one kind."""
    theirs, ours = both_filled
    config = f"remote_read: [{{url: '{ours}/api/v1/read', read_recent: true}}]\n"
    with prometheus(tmp_path / "reader", config=config) as reader:
        for query in ("up", "http.size".join(('{"', '"}')), "pure[5m]", "histogram_sum(custom)", "gone", "odd[5m]"):
            given = {"query": query, "time": str(time.time())}
            found = [httpx.get(f"{base}/api/v1/query", params=given).json() for base in (theirs, reader)]
            assert [one["status"] for one in found] == ["success"] * 2, found
            rows = [sorted(one["data"]["result"], key=lambda row: str(row["metric"])) for one in found]
            assert rows[0] == rows[1], query
            assert rows[0] or query == "gone"


def _in_order(response: httpx.Response) -> str:
    """Its text, but for the order of several warnings, which Prometheus leaves to chance."""
    text = response.text.strip()
    warnings = response.json().get("warnings", [])
    written, ordered = (json.dumps(some, separators=(",", ":")) for some in (warnings, sorted(warnings)))
    return text.replace(f'"warnings":{written}', f'"warnings":{ordered}')


def test_a_real_prometheus_parses_the_same(both: tuple[str, str]) -> None:
    for query in (
        "sum by (b) (rate(a{x=~'y'}[5m] offset 1m)) / on (b) group_left (c) d",
        "quantile(0.5, -a)",
        "a @ end()",
    ):
        theirs, ours = (httpx.get(f"{base}/parse_query", params={"query": query}).json() for base in both)
        assert ours == theirs
