"""Lists of labels, values, series and sizes over Loki's API, and what clients ask at their start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import orjson
import pytest

from api.loki.loki_lake import KEYS, LINES, NOW, PARTS, SECOND, LokiClient, lines_lake, loki_server
from lakerunner.api.loki.log_queries import LokiLimits
from lakerunner.logql.log_limits import LogLimits
from lakerunner.logql.stream_list import LogStreams, read_matchers, streams_plan
from lakerunner.model.streams.stream_rules import StreamRules
from lakerunner.model.time import TimeRange
from lakerunner.query.gather import GatherOptions, UnitSize
from lakerunner.query.options import Options
from lakerunner.query.workers import OneWorker
from query.sample_lake import OTHER, OWN, START, Lake, Record
from suites.queries import sql_queries

WITHIN = {"start": START, "end": NOW}
PROD = '{env="prod"}'
CART, PAY = ({"app": app, "env": "prod", "service_name": app} for app in ("cart", "pay"))
SIZES = {app: sum(len(one.text) for one in LINES if dict(one.stream)["app"] == app) for app in ("cart", "pay")}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return lines_lake(tmp_path_factory.mktemp("loki-lists"))


@pytest.fixture(scope="module")
def loki(lake: Lake) -> Iterator[LokiClient]:
    with loki_server(lake) as client:
        yield client


def test_labels_and_values(loki: LokiClient) -> None:
    names = ["app", "env", "service_name"]
    assert loki.data("labels", **WITHIN) == loki.data("label", **WITHIN) == names
    assert loki.data("labels", **WITHIN, query='{app="pay"}') == names
    assert loki.data("label/app/values", **WITHIN) == ["cart", "pay"]
    assert loki.data("label/app/values", **WITHIN, query='{service_name=~"p.+"}') == ["pay"]
    assert loki.data("label/app/values", start=START + 30 * SECOND, end=NOW) == ["pay"]


def test_an_empty_list_of_texts_has_no_data(loki: LokiClient) -> None:
    assert loki.json("label/none/values", **WITHIN) == {"status": "success"}
    assert loki.json("labels", start=2, end=1) == {"status": "success"}
    assert loki.json("labels", start=1, end=2) == {"status": "success"}


def test_series(loki: LokiClient) -> None:
    url, headers = f"{loki.url}/loki/api/v1/series", {"x-api-key": "own"}
    for given, found in (
        ([], [CART, PAY]),
        ([("match[]", "{}")], [CART, PAY]),
        ([("match[]", '{app="pay"}')], [PAY]),
        ([("match", '{app="pay"}'), ("match[]", '{app=~"c.*"}')], [CART, PAY]),
        ([("match", '{none=~".*"}')], [CART, PAY]),
        ([("match", '{app="none"}')], []),
    ):
        answer = httpx.get(url, params=[*WITHIN.items(), *given], headers=headers, timeout=60)
        assert answer.json() == {"status": "success", "data": found}, given
    wrong = loki.get("series", **WITHIN, match=["{}", '{app="a"}'])
    assert (wrong.status_code, wrong.text) == (400, "0 matchers in group: {}")


@pytest.mark.parametrize("path", ["labels", "label/app/values", "index/stats", "index/volume", "detected_labels"])
def test_lists_take_selectors_alone(loki: LokiClient, path: str) -> None:
    response = loki.get(path, **WITHIN, query='{app="a"} |= "b"')
    assert (response.status_code, response.text) == (400, "only label matchers are supported")


def test_statistics_of_the_index(loki: LokiClient) -> None:
    found = loki.json("index/stats", **WITHIN, query=PROD)
    assert found == {"streams": 2, "chunks": PARTS, "entries": 5, "bytes": sum(SIZES.values())}
    pay = loki.json("index/stats", query='{app="pay"}', start=START + 3 * SECOND, end=NOW)
    assert (pay["streams"], pay["entries"], pay["bytes"]) == (1, 1, len(LINES[4].text))


def volumes(data: Any) -> list[tuple[dict[str, str], Any]]:
    return [(one["metric"], one.get("value") or one["values"]) for one in data["result"]]


def test_volumes(loki: LokiClient) -> None:
    end, cart, pay = NOW // SECOND, str(SIZES["cart"]), str(SIZES["pay"])
    found = loki.data("index/volume", **WITHIN, query="{}")
    assert found["resultType"] == "vector"
    assert volumes(found) == [(CART, [end, cart]), (PAY, [end, pay])]
    both = str(sum(SIZES.values()))
    assert volumes(loki.data("index/volume", **WITHIN, query=PROD)) == [({"env": "prod"}, [end, both])]
    by_app = {**WITHIN, "query": PROD, "targetLabels": "app"}
    assert volumes(loki.data("index/volume", **by_app)) == [
        ({"app": "cart"}, [end, cart]),
        ({"app": "pay"}, [end, pay]),
    ]
    assert volumes(loki.data("index/volume", **by_app, limit=1)) == [({"app": "cart"}, [end, cart])]
    names = loki.data("index/volume", **WITHIN, query=PROD, aggregateBy="labels")
    assert volumes(names) == [({name: ""}, [end, both]) for name in ("app", "env", "service_name")]
    assert volumes(loki.data("index/volume", **WITHIN, query=PROD, targetLabels="none")) == []
    wrong = loki.get("index/volume", **WITHIN, query=PROD, aggregateBy="lines")
    assert (wrong.status_code, wrong.text) == (400, "invalid aggregation option")


def test_volumes_over_time(loki: LokiClient) -> None:
    given = {"query": PROD, "targetLabels": "app", "start": START, "end": START + 120 * SECOND, "step": "60s"}
    found = loki.data("index/volume_range", **given)
    first = START // SECOND + 59.999
    assert found["resultType"] == "matrix"
    assert volumes(found) == [
        ({"app": "cart"}, [[first, str(SIZES["cart"])]]),
        ({"app": "pay"}, [[first, str(len(LINES[2].text))], [START // SECOND + 120, str(len(LINES[4].text))]]),
    ]


def test_detected_labels(loki: LokiClient, lake: Lake) -> None:
    found = loki.json("detected_labels", **WITHIN, query=PROD)
    shown = [(one["label"], one["cardinality"]) for one in found["detectedLabels"]]
    assert shown == [("app", 2), ("env", 1), ("service_name", 2)]


def test_streams_of_otlp(lake: Lake) -> None:
    """Labels with ids and numbers alone are not detected; sizes are those of lines."""
    resource = (("service.name", "shop"), ("k8s.pod.name", "17"), ("host", "h"))
    lake.add([Record(START + 5, message="été", resource=resource)], organization=OTHER)
    with loki_server(lake) as client:
        other = LokiClient(client.url, "other")
        assert other.data("series", **WITHIN, match='{k8s_pod_name="17"}') == [
            {"k8s_pod_name": "17", "service_name": "shop"}
        ]
        assert other.json("index/stats", **WITHIN, query='{k8s_pod_name="17"}')["bytes"] == 5
        found = other.json("detected_labels", **WITHIN)["detectedLabels"]
        assert [one["label"] for one in found] == ["app", "service_name"]


def test_streams_are_the_same_however_segments_are_cut(lake: Lake) -> None:
    streams = LogStreams((read_matchers(PROD),), StreamRules(), 60 * SECOND, sized=True)
    plan, found = streams_plan(streams, TimeRange(START, NOW)), []
    for size in (1, 1 << 30):
        gathering = GatherOptions(size=UnitSize(bytes=size))
        engine = sql_queries(lake, OneWorker(lake.worker()), lake.sandboxes(), gathering=gathering).engine
        found.append([row for batch in engine.answer(OWN, plan, Options(NOW)) for row in batch.to_pylist()])
    assert found[0] == found[1]
    assert [(row["entries"], row["first_ns"], row["last_ns"]) for row in found[0]] == [
        (3, LINES[0].time, LINES[3].time),
        (1, LINES[2].time, LINES[2].time),
        (1, LINES[4].time, LINES[4].time),
    ]


def test_a_list_holds_the_limit_of_series(lake: Lake) -> None:
    for series, status in ((2, 200), (1, 400)):
        with loki_server(lake, most=LokiLimits(query=LogLimits(series))) as client:
            assert client.get("series", **WITHIN).status_code == status


def test_the_operator_is_the_same_on_a_worker() -> None:
    selectors = (read_matchers('{a="1", b!~"2|3"}'), read_matchers('{c=~".+"}'))
    streams = LogStreams(selectors, StreamRules(detect_levels=False), 60, sized=True)
    sent = orjson.loads(orjson.dumps(streams.to_json()))
    assert LogStreams.from_json(sent) == streams
    for wrong in ({**sent, "bucket_ns": -1}, {**sent, "selectors": [[["a", "=", "1", "x"]]]}):
        with pytest.raises((ValueError, TypeError)):
            LogStreams.from_json(wrong)
    assert list(streams.lines()) == ["streams {a='1', b!~'2|3'} or {c=~'.+'}"]


def test_what_clients_ask_at_their_start(loki: LokiClient) -> None:
    assert httpx.get(f"{loki.url}/ready").text == "ready\n"
    assert loki.json("status/buildinfo")["version"] == "3.7.0"
    drilldown = loki.json("drilldown-limits")
    assert drilldown["limits"]["volume_enabled"] is True
    assert drilldown["limits"]["max_entries_limit_per_query"] == 5000
    assert drilldown["pattern_ingester_enabled"] is True
    limits = loki.send("/config/tenant/v1/limits", {})
    assert "max_entries_limit_per_query: 5000\n" in limits.text
    assert loki.get("rules").text == loki.send("/api/prom/rules", {}).text == "{}\n"


def test_format_query(loki: LokiClient) -> None:
    assert loki.json("format_query", query='{app="a"}|="b"') == {"status": "success", "data": '{app="a"} |= "b"'}
    wrong = loki.get("format_query", query="{")
    assert wrong.status_code == 400
    assert wrong.json()["status"] == "invalid-query"
    assert wrong.json()["error"].startswith("parse error at line 1, col 2: syntax error")


def test_deletion_says_what_to_do(loki: LokiClient) -> None:
    for method in ("GET", "POST", "PUT", "DELETE"):
        response = httpx.request(method, f"{loki.url}/loki/api/v1/delete", headers={"x-api-key": "own"})
        assert response.status_code == 501
        assert "retention" in response.text


def test_an_organization_sees_its_own_streams(loki: LokiClient) -> None:
    other = LokiClient(loki.url, "other")
    assert "cart" not in other.data("label/app/values", **WITHIN)
    assert KEYS["other"].id == OTHER
    assert "secret" not in str(loki.data("series", **WITHIN))
