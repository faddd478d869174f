"""A session of Grafana's Prometheus data source with a whole lake: what it calls when it is saved, in its query
builder, in Explore and on a dashboard; and promtool. What they are told is what was sent."""

from __future__ import annotations

import json
import time

import httpx
import pytest

from servers.lake import Lake, wait_until
from servers.peers import peer, run_peer
from suites.grafana import Grafana
from suites.otlp_metrics import CUMULATIVE, SECOND, Otlp, counter, gauge

EVERY, COUNT = 15, 41
NOW = int(time.time()) // EVERY * EVERY - 60
TIMES = [NOW - EVERY * (COUNT - 1 - n) for n in range(COUNT)]
WITHIN = {"start": str(TIMES[0]), "end": str(NOW)}
TRACE = bytes(range(16))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def request() -> bytes:
    made = Otlp()
    for job in ("cart", "pay"):
        scope = made.resource(service_name=f"grafana-{job}", service_instance_id="i1", k8s_pod_name=f"{job}-0")
        for status in ("200", "500"):
            points = [(TIMES[0], at, 30.0 * n) for n, at in enumerate(TIMES)]
            metric = counter(scope, "panel.requests", points, CUMULATIVE, status=status, **{"http.route": "/"})
            metric.description = "Requests."
            exemplar = metric.sum.data_points[-1].exemplars.add(time_unix_nano=NOW * SECOND, as_double=1.0)
            exemplar.trace_id = TRACE
        gauge(scope, "panel.load", [(at, 0.5) for at in TIMES])
        histogram = scope.metrics.add(name="panel.seconds", unit="s").histogram
        histogram.aggregation_temporality = CUMULATIVE
        for n, at in enumerate(TIMES, 1):
            point = histogram.data_points.add(time_unix_nano=at * SECOND, count=4 * n, sum=2.0 * n)
            point.explicit_bounds.extend([0.5, 1.0])
            point.bucket_counts.extend([2 * n, n, n])
    return made.data


@pytest.fixture(scope="module")
def root(up: Lake) -> str:
    response = httpx.post(
        f"{up.url}/v1/metrics", content=request(), headers={"content-type": "application/x-protobuf"}, timeout=60
    )
    assert response.status_code == 200, response.text

    def there() -> bool:
        found = httpx.get(f"{up.url}/prometheus/api/v1/query", params={"query": "panel_load", "time": NOW}, timeout=60)
        return len(found.json()["data"]["result"]) == 2

    wait_until(there, "what was pushed", 120, up.process.text)
    return f"{up.url}/prometheus"


@pytest.fixture(scope="module")
def grafana(up: Lake, root: str) -> Grafana:
    made = up.command("keys", "create", "grafana", "--role", "read")
    return Grafana(root, made.stdout.strip())


def test_save_and_test(grafana: Grafana) -> None:
    assert grafana.instant("1+1", NOW)["result"] == [NOW, "2"]
    build = grafana.resource("GET", "/api/v1/status/buildinfo", {})
    assert build["application"].startswith("Lakerunner ")
    assert grafana.resource("GET", "/api/v1/rules", {}) == {"groups": []}
    assert "panel_load" in grafana.resource("GET", "/api/v1/label/__name__/values", {**WITHIN, "limit": "40000"})


def test_query_builder(grafana: Grafana) -> None:
    names = grafana.resource("GET", "/api/v1/label/__name__/values", {**WITHIN, "match[]": '{__name__=~".*panel.*"}'})
    assert names == [
        "panel_load",
        "panel_requests_total",
        "panel_seconds",
        "panel_seconds_bucket",
        "panel_seconds_count",
        "panel_seconds_sum",
    ]
    match = {**WITHIN, "match[]": 'panel_requests_total{job="grafana-cart"}', "limit": "40000"}
    assert grafana.resource("POST", "/api/v1/labels", match) == ["__name__", "http_route", "instance", "job", "status"]
    assert grafana.resource("GET", "/api/v1/label/status/values", match) == ["200", "500"]
    dotted = {**WITHIN, "match[]": '{"panel.requests_total"}'}
    assert grafana.resource("GET", "/api/v1/label/U__http_2e_route/values", dotted) == ["/"]
    series = grafana.resource("POST", "/api/v1/series", match)
    assert [one["status"] for one in series] == ["200", "500"]
    told = grafana.resource("GET", "/api/v1/metadata", {"limit": "40000"})
    assert told["panel_requests_total"] == [{"type": "counter", "help": "Requests.", "unit": ""}]
    assert told["panel_seconds"] == [{"type": "histogram", "help": "", "unit": "seconds"}]


def test_explore_and_panels(grafana: Grafana) -> None:
    rate = grafana.range("sum by (job) (rate(panel_requests_total[1m0s]))", NOW - 300, NOW, 15)
    assert [series["metric"] for series in rate["result"]] == [{"job": "grafana-cart"}, {"job": "grafana-pay"}]
    for series in rate["result"]:
        assert [at for at, _ in series["values"]] == list(range(NOW - 300, NOW + 1, 15))
        assert [float(value) for _, value in series["values"]] == pytest.approx([4.0] * 21, rel=1e-12)
    heat = grafana.range("sum by (le) (increase(panel_seconds_bucket[1m]))", NOW - 120, NOW, 60)
    for one, grown in zip(heat["result"], (32.0, 16.0, 24.0), strict=True):  # of +Inf, 0.5 and 1
        assert [float(value) for _, value in one["values"]] == pytest.approx([grown] * 3, rel=1e-12)
    median = grafana.instant("histogram_quantile(0.5, sum by (le) (rate(panel_seconds_bucket[5m])))", NOW)
    assert [row["value"][1] for row in median["result"]] == ["0.5"]
    table = grafana.instant('topk(1, panel_requests_total{job="grafana-pay", status="500"})', NOW)
    assert [row["value"] for row in table["result"]] == [[NOW, str(30 * (COUNT - 1))]]


def test_variables_and_exemplars(grafana: Grafana) -> None:
    """label_values(panel_load, job), query_result(...), and the exemplars of a panel."""
    given = {**WITHIN, "match[]": "panel_load"}
    assert grafana.resource("GET", "/api/v1/label/job/values", given) == ["grafana-cart", "grafana-pay"]
    assert len(grafana.resource("GET", "/api/v1/series", given)) == 2
    found = grafana.resource("POST", "/api/v1/query_exemplars", {**WITHIN, "query": "rate(panel_requests_total[1m])"})
    assert len(found) == 4
    for one in found:
        assert one["seriesLabels"]["__name__"] == "panel_requests_total"
        assert one["exemplars"] == [{"labels": {"trace_id": TRACE.hex()}, "value": "1", "timestamp": NOW}]


def test_promtool(root: str) -> None:
    peer("promtool")
    at, ends = f"--time={NOW}", (f"--start={NOW - 60}", f"--end={NOW}")
    instant = json.loads(run_peer("promtool", "query", "instant", "-o", "json", at, root, "sum(panel_load)"))
    assert [row["value"] for row in instant] == [[NOW, "1"]]
    ranged = run_peer("promtool", "query", "range", "-o", "json", *ends, "--step=30s", root, "sum(panel_load) * 2")
    assert json.loads(ranged)[0]["values"] == [[NOW - 60, "2"], [NOW - 30, "2"], [NOW, "2"]]
    listed = run_peer("promtool", "query", "series", "--match=panel_load", *ends, root).splitlines()
    assert listed == [f'{{__name__="panel_load", instance="i1", job="grafana-{job}"}}' for job in ("cart", "pay")]
    jobs = run_peer("promtool", "query", "labels", "--match=panel_load", *ends, root, "job").split()
    assert jobs == ["grafana-cart", "grafana-pay"]
    asked = ("--type=histogram", "--match=panel_seconds_bucket", "--duration=10m", f"--time={NOW}")
    said = run_peer("promtool", "query", "analyze", f"--server={root}", *asked)
    assert "panel_seconds" in said
