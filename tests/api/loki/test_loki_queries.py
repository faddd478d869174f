"""LogQL over Loki's API on real segments: shapes and values, directions, limits, intervals, errors in Loki's words."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from api.loki.loki_lake import KEYS, LINES, NOW, SECOND, LokiClient, lines_lake, loki_server
from lakerunner.api.loki.log_queries import LokiLimits
from lakerunner.logql.log_limits import LogLimits
from lakerunner.logql.log_plan import NO_LOG_INSTANT
from query.sample_lake import START, Lake

FLAGS = {"X-Loki-Response-Encoding-Flags": "categorize-labels"}
ALL: dict[str, Any] = {"query": '{env="prod"}', "start": START, "end": NOW}
CART = {"app": "cart", "env": "prod", "service_name": "cart"}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return lines_lake(tmp_path_factory.mktemp("loki"))


@pytest.fixture(scope="module")
def loki(lake: Lake) -> Iterator[LokiClient]:
    with loki_server(lake) as client:
        yield client


def texts(data: Any) -> list[list[str]]:
    return [[line for _, line, *_ in stream["values"]] for stream in data["result"]]


def test_grafanas_health_check(loki: LokiClient) -> None:
    found = loki.data("query", query="vector(1)+vector(1)", time=4_000_000_000)
    assert found["resultType"] == "vector"
    assert found["result"] == [{"metric": {}, "value": [4_000_000_000, "2"]}]
    assert found["stats"]["summary"]["totalEntriesReturned"] == 1


def test_the_last_time_that_there_is(loki: LokiClient) -> None:
    """All lines are before it; DuckDB takes it for no time."""
    forever = {**ALL, "end": (1 << 63) - 1, "step": 10**9}
    assert loki.data("query_range", **forever)["result"] == loki.data("query_range", **ALL)["result"]
    for path in ("labels", "series", "index/stats"):
        one, other = (loki.get(path, **{**given, "match[]": given["query"]}) for given in (ALL, forever))
        assert (one.status_code, one.json()) == (200, other.json()), path


def test_entries_of_categorized_streams(loki: LokiClient) -> None:
    found = loki.data("query_range", FLAGS, query='{app="cart"} | logfmt', start=START, end=NOW)
    assert (found["resultType"], found["encodingFlags"]) == ("streams", ["categorize-labels"])
    (stream,) = found["result"]
    assert stream["stream"] == CART
    assert [time for time, *_ in stream["values"]] == [str(START + n * SECOND) for n in (3, 2, 1)]
    assert stream["values"][1] == [
        str(START + 2 * SECOND),
        LINES[1].text,
        {
            "structuredMetadata": {"detected_level": "error", "trace_id": "t2"},
            "parsed": {"level": "error", "path": "/b", "took": "250ms"},
        },
    ]


def test_all_labels_are_those_of_the_stream_otherwise(loki: LokiClient) -> None:
    found = loki.data("query_range", **ALL)
    assert "encodingFlags" not in found
    assert [one["stream"] for one in found["result"]] == [
        {**CART, "detected_level": "error", "trace_id": "t2"},
        {**CART, "detected_level": "info", "trace_id": "t1"},
        {"app": "pay", "env": "prod", "service_name": "pay", "detected_level": "info"},
        {"app": "pay", "env": "prod", "service_name": "pay", "detected_level": "warn"},
    ]
    assert found["result"][1]["values"] == [
        [str(START + 3 * SECOND), LINES[3].text],
        [str(START + 1 * SECOND), LINES[0].text],
    ]


def test_direction_and_limit(loki: LokiClient) -> None:
    oldest = loki.data("query_range", FLAGS, **ALL, direction="FORWARD", limit=2)
    assert texts(oldest) == [[LINES[0].text, LINES[1].text]]
    newest = loki.data("query_range", FLAGS, **ALL, limit=2)
    assert texts(newest) == [[LINES[3].text], [LINES[4].text]]
    assert newest["stats"]["summary"]["totalEntriesReturned"] == 2


def test_an_interval_leaves_out_entries_that_follow_too_soon(loki: LokiClient) -> None:
    found = loki.data("query_range", FLAGS, **ALL, direction="forward", interval="2s")
    assert texts(found) == [[LINES[0].text, LINES[3].text], [LINES[4].text]]
    backward = loki.data("query_range", FLAGS, **ALL, interval="1.5")
    assert texts(backward) == [[LINES[3].text, LINES[0].text], [LINES[4].text]]
    assert texts(loki.data("query_range", FLAGS, **ALL, interval="1.5", limit=2)) == [[LINES[3].text], [LINES[4].text]]


def test_the_end_is_not_included(loki: LokiClient) -> None:
    given = {"query": '{app="cart"}', "start": START + 1 * SECOND, "end": START + 3 * SECOND}
    assert texts(loki.data("query_range", FLAGS, **given)) == [[LINES[1].text, LINES[0].text]]
    assert loki.data("query_range", FLAGS, query='{app="none"}')["result"] == []


def test_metric_queries(loki: LokiClient) -> None:
    query = 'sum by (app) (count_over_time({env="prod"}[1m]))'
    found = loki.data("query", query=query, time=START + 62 * SECOND)
    at = (START + 62 * SECOND) // SECOND
    assert sorted(found["result"], key=lambda one: one["metric"]["app"]) == [
        {"metric": {"app": "cart"}, "value": [at, "1"]},
        {"metric": {"app": "pay"}, "value": [at, "2"]},
    ]
    steps = loki.data("query_range", query=query, start=START, end=START + 120 * SECOND, step="60")
    first = START // SECOND
    assert steps["resultType"] == "matrix"
    assert steps["result"] == [
        {"metric": {"app": "cart"}, "values": [[first + 60, "3"]]},
        {"metric": {"app": "pay"}, "values": [[first + 60, "1"], [first + 120, "1"]]},
    ]
    assert loki.data("query", query="1 / 4", time=1.5)["result"] == [1.5, "0.25"]
    constant = loki.data("query_range", query="2", start=1, end=3, step=1)
    assert (constant["resultType"], constant["result"]) == (
        "matrix",
        [{"metric": {}, "values": [[1, "2"], [2, "2"], [3, "2"]]}],
    )


def test_numbers_have_no_exponent(loki: LokiClient) -> None:
    for query, text in (("1e22", "1" + "0" * 22), ("1e-7", "0.0000001"), ("2.5", "2.5")):
        assert loki.data("query", query=query)["result"][1] == text, query


def test_the_step_has_lokis_default(loki: LokiClient) -> None:
    found = loki.data("query_range", query="vector(1)", start=START, end=START + 1000 * SECOND)
    assert [time - START // SECOND for time, _ in found["result"][0]["values"]] == list(range(0, 1001, 4))


def test_statistics_are_those_of_the_query(loki: LokiClient) -> None:
    found = loki.data("query_range", **ALL)["stats"]
    summary = found["summary"]
    assert (summary["totalEntriesReturned"], summary["totalLinesProcessed"]) == (5, 5)
    assert summary["totalBytesProcessed"] > 100
    assert 0 < summary["execTime"] < 60
    assert found["index"]["postFilterChunks"] == found["querier"]["store"]["totalChunksDownloaded"] == 3
    assert found["cache"]["result"]["entriesFound"] == found["ingester"]["totalReached"] == 0


def test_get_and_post_are_the_same(loki: LokiClient) -> None:
    headers = {"x-api-key": "own"}
    for path, form in (("query_range", ALL), ("query", {"query": "vector(3)", "time": 4}), ("labels", ALL)):
        url = f"{loki.url}/loki/api/v1/{path}"
        posted = httpx.post(url, data=form, headers=headers, timeout=60).json()["data"]
        got = loki.data(path, **form)
        assert (posted["result"] == got["result"]) if "result" in posted else (posted == got), path


def test_answers_are_gzipped(loki: LokiClient) -> None:
    url = f"{loki.url}/loki/api/v1/query_range"
    with httpx.stream("GET", url, params=ALL, headers={"x-api-key": "own", "accept-encoding": "gzip"}) as response:
        assert response.headers["content-encoding"] == "gzip"
        assert gzip.decompress(b"".join(response.iter_raw())).startswith(b'{"status":"success","data":')


PARQUET = {"Accept": "application/vnd.apache.parquet"}


def parquet_rows(response: httpx.Response) -> list[tuple[int, dict[str, str], Any]]:
    assert (response.status_code, response.headers["content-type"]) == (200, PARQUET["Accept"]), response.text
    table = pq.read_table(io.BytesIO(response.content))
    times = table.column("timestamp").cast(pa.int64()).to_pylist()
    rest = (table.column(name).to_pylist() for name in table.column_names[1:])
    return [(time, dict(labels), value) for time, labels, value in zip(times, *rest, strict=True)]


def test_lines_as_parquet(loki: LokiClient) -> None:
    """Labels of all kinds are one map, whatever the encoding flags say; the order is that of JSON."""
    expected = [
        (int(time), stream["stream"], line)
        for stream in loki.data("query_range", **ALL)["result"]
        for time, line in stream["values"]
    ]
    response = loki.get("query_range", PARQUET | FLAGS, **ALL)
    assert parquet_rows(response) == expected
    types = pq.read_schema(io.BytesIO(response.content))
    assert (str(types.field("timestamp").type), types.names[1:]) == ("timestamp[ns, tz=UTC]", ["labels", "line"])
    assert parquet_rows(loki.get("query_range", PARQUET, query='{app="none"}')) == []


def test_samples_as_parquet(loki: LokiClient) -> None:
    query = 'sum by (app) (count_over_time({env="prod"}[1m]))'
    response = loki.get("query_range", PARQUET, query=query, start=START, end=START + 120 * SECOND, step="60")
    first = START // 1_000_000
    cart, pay = {"app": "cart"}, {"app": "pay"}
    assert parquet_rows(response) == [(first + 60_000, cart, 3), (first + 60_000, pay, 1), (first + 120_000, pay, 1)]
    assert pq.read_schema(io.BytesIO(response.content)).names == ["timestamp", "labels", "value"]
    assert parquet_rows(loki.get("query", PARQUET, query="1 / 4", time=1.5)) == [(1500, {}, 0.25)]
    wrong = loki.get("query", PARQUET, query="1 /")
    assert (wrong.status_code, wrong.headers["content-type"]) == (400, "text/plain; charset=utf-8")


@pytest.mark.parametrize(
    ("path", "given", "words"),
    [
        ("query", {"query": '{app="cart"}'}, NO_LOG_INSTANT),
        ("query_range", {**ALL, "limit": 0}, "limit must be a positive value"),
        ("query_range", {**ALL, "limit": "x"}, 'strconv.Atoi: parsing "x": invalid syntax'),
        (
            "query_range",
            {**ALL, "limit": 5001},
            "max entries limit per query exceeded, limit > max_entries_limit_per_query (5001 > 5000)",
        ),
        ("query_range", {**ALL, "direction": "up"}, "invalid direction 'up'"),
        ("query_range", {**ALL, "end": START - 1}, "end timestamp must not be before or equal to start time"),
        (
            "query_range",
            {**ALL, "step": "0"},
            "zero or negative query resolution step widths are not accepted. Try a positive integer",
        ),
        (
            "query_range",
            {**ALL, "step": "0.3"},
            "exceeded maximum resolution of 11,000 points per time series. Try increasing the value of the step "
            "parameter",
        ),
        ("query_range", {**ALL, "step": "1x"}, 'cannot parse "1x" to a valid duration'),
        ("query_range", {**ALL, "interval": "-1"}, "interval must be >= 0"),
        (
            "query_range",
            {**ALL, "start": "soon"},
            "could not parse 'start' parameter: strconv.ParseInt: parsing \"soon\": invalid syntax",
        ),
        ("query", {"query": "1", "time": "soon"}, 'strconv.ParseInt: parsing "soon": invalid syntax'),
        (
            "query_range",
            {**ALL, "since": "1x"},
            'could not parse \'since\' parameter: unknown unit "x" in duration "1x"',
        ),
    ],
)
def test_wrong_requests_are_refused_in_lokis_words(
    loki: LokiClient, path: str, given: dict[str, Any], words: str
) -> None:
    response = loki.get(path, **given)
    assert (response.status_code, response.text) == (400, words)
    assert response.headers["content-type"] == "text/plain; charset=utf-8"


def test_wrong_queries_are_refused_with_their_place(loki: LokiClient) -> None:
    response = loki.get("query_range", query='{app="cart"')
    assert response.status_code == 400
    assert response.text.startswith("parse error at line 1, col 12: syntax error")
    empty = loki.get("query_range", query='{app=~".*"}')
    assert empty.status_code == 400
    assert "queries require at least one regexp or equality matcher" in empty.text


def test_a_metric_query_is_not_bound_by_the_limit_of_entries(loki: LokiClient) -> None:
    assert loki.data("query_range", query="vector(1)", start=1, end=2, step=1, limit=9000)["resultType"] == "matrix"


def test_limits_hold_one_past_them(lake: Lake) -> None:
    counted = 'count_over_time({env="prod"}[1h])'
    for series, status in ((4, 200), (3, 400)):
        with loki_server(lake, most=LokiLimits(2, LogLimits(series))) as client:
            response = client.get("query", query=counted, time=NOW)
            assert response.status_code == status, response.text
            assert ("metrics_max_series" in response.text) == (status == 400)
            assert client.get("query_range", **ALL, limit=2).status_code == 200
            assert client.get("query_range", **ALL, limit=3).status_code == 400


def test_keys_and_tenants(lake: Lake, loki: LokiClient) -> None:
    other = LokiClient(loki.url, "other")
    given = {"query": '{app=~".+"}', "start": START, "end": NOW}
    assert texts(other.data("query_range", FLAGS, **given)) == [["theirs"]]
    assert loki.get("labels", {"x-api-key": "wrong"}).status_code == 401
    for tenant in ("own", str(KEYS["own"].id)):
        assert loki.get("labels", {"X-Scope-OrgID": tenant}, **ALL).status_code == 200
    refused = loki.get("labels", {"X-Scope-OrgID": "other"})
    assert refused.status_code == 403
    assert refused.text.startswith("X-Scope-OrgID 'other' is not the organization of the request (own)")
    with loki_server(lake, keys=None) as keyless:
        assert keyless.get("labels", {"X-Scope-OrgID": "default"}, **ALL).status_code == 401  # the key is unknown
        url = f"{keyless.url}/loki/api/v1/labels"
        assert httpx.get(url, params=ALL, headers={"X-Scope-OrgID": "default"}).status_code == 200
        assert httpx.get(url, params=ALL, headers={"X-Scope-OrgID": "own"}).status_code == 403


def test_old_clients(loki: LokiClient) -> None:
    found = loki.send("/api/prom/query", {**ALL, "regexp": "took=2", "direction": "forward"}).json()
    assert found["streams"][1] == {
        "labels": '{app="cart", detected_level="info", env="prod", service_name="cart", trace_id="t1"}',
        "entries": [{"ts": "2024-01-01T00:00:03Z", "line": LINES[3].text}],
    }
    refused = loki.send("/api/prom/query", {"query": "vector(1)"})
    assert (refused.status_code, refused.text) == (400, "legacy endpoints only support streams result type")
    assert loki.send("/api/prom/label", ALL).json() == {"values": ["app", "env", "service_name"]}
    assert loki.send("/api/prom/label/app/values", ALL).json() == {"values": ["cart", "pay"]}


def test_query_tags_are_cleaned_and_logged(loki: LokiClient, caplog: pytest.LogCaptureFixture) -> None:
    tags = {"X-Query-Tags": 'Source=grafana, Panel = "7"\t,broken,x=a=b,' + "y" * 2000}
    with caplog.at_level("INFO", "lakerunner.api.loki"):
        loki.json("query", tags, query="vector(1)")
    assert [record.getMessage() for record in caplog.records if "tags" in record.getMessage()] == [
        f"query of organization {KEYS['own'].id} with tags source=grafana,panel=_7_,x=a=b"
    ]


def test_drilldowns_answers_are_cut_at_the_limit_of_series(lake: Lake) -> None:
    asked = {"query": 'sum by (path) (count_over_time({app="cart"} | logfmt [1h]))', "time": NOW}
    with loki_server(lake, most=LokiLimits(query=LogLimits(max_series=1))) as small:
        assert small.get("query", **asked).status_code == 400
        cut = small.json("query", {"X-Query-Tags": "Source=grafana-lokiexplore-app"}, **asked)
    assert cut["warnings"] == ["maximum number of series (1) reached for a single query; returning partial results"]
    assert len(cut["data"]["result"]) == 1
