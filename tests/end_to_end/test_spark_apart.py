"""`lakerunner up` outlives its Java processes: the pipeline's is started again and nothing is lost or doubled, and what
queries do to theirs neither stops nor holds up ingest. No query reaches the server's environment. PromQL by tasks gives
the bits that it gives without Spark."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from http.client import HTTPConnection
from typing import Any

import httpx
import psutil
import pytest

from servers.lake import Lake, lake, wait_until
from suites.otlp_metrics import CUMULATIVE, Otlp, counter, gauge
from suites.requests import request_of
from suites.scripted import events_of

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]

PROTOBUF = {"content-type": "application/x-protobuf"}
SECRET = "9f0c6c0e-of-the-cluster"
LINES = 3000
SOON = 300  # seconds: what happens at once may take as long on a busy machine
T0 = 1_767_225_600  # 2026-01-01
# Four tables of LINES rows: nothing ends it but the limit.
ENDLESS = (
    "SELECT count(*) AS n FROM logs a, logs b, logs c, logs d WHERE length(a.message || b.message || d.message) > 3"
)
GROWTH = "WITH t0 AS (SELECT message || message || message || message AS x FROM logs)" + "".join(
    f", t{n} AS (SELECT x || x || x || x AS x FROM t{n - 1})" for n in range(1, 13)
)
GROWTH += " SELECT max(length(x)) AS n FROM t12"


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    environment = {
        "LAKERUNNER_WORKER_KEY": SECRET,
        "LAKERUNNER_QUERY_SPARK_MEMORY": "640m",
        "LAKERUNNER_QUERY_SECONDS": "1800",  # so that no query here ends by its time
        "LAKERUNNER_COMPACT_MAX_SECONDS": "600",  # so that only what is measured runs
    }
    with lake(tmp_path_factory.mktemp("apart") / "home", environment) as running:
        yield running


@pytest.fixture(scope="module")
def keys(up: Lake) -> dict[str, dict[str, str]]:
    """Headers of three organizations; two of them have LINES lines."""
    headers = {}
    for name in ("amber", "basil", "cedar"):
        assert up.command("orgs", "create", name).returncode == 0
        made = up.command("keys", "create", "all", "--org", name, "--role", "admin")
        assert made.returncode == 0, made.stderr
        (secret,) = [word for word in made.stdout.split() if word.startswith("lrk_")]
        headers[name] = {"authorization": f"Bearer {secret}"}
    for name in ("amber", "cedar"):
        push(up, [f"{name} line {number}" for number in range(LINES)], headers[name])
        wait_until(partial(_has_all_lines, up, headers[name]), "its lines", SOON, up.process.text)
    return headers


def push(up: Lake, messages: list[str], headers: dict[str, str] | None = None) -> None:
    sent = httpx.post(f"{up.url}/v1/logs", content=request_of(*messages), headers={**PROTOBUF, **(headers or {})})
    assert sent.status_code == 200, sent.text


def by_spark(up: Lake, query: str, headers: dict[str, str] | None = None, **fields: Any) -> httpx.Response:
    body = {"query": query, "engine": "spark", **fields}
    return httpx.post(f"{up.url}/api/v1/sql", json=body, headers=headers or {}, timeout=900)


def wait_for_spark(up: Lake, headers: dict[str, str]) -> None:
    """Until Spark counts all lines: while the queries before are being ended, it has no place for another."""
    found: list[httpx.Response] = []

    def answered() -> bool:
        found[:] = [by_spark(up, "SELECT count(*) AS n FROM logs", headers)]
        return found[0].status_code != 429

    wait_until(answered, "a place in Spark", SOON, lambda: found[0].text)
    assert (found[0].status_code, found[0].json().get("rows")) == (200, [{"n": LINES}]), found[0].text


def _has_all_lines(up: Lake, headers: dict[str, str]) -> bool:
    return count(up, headers) == LINES


def count(up: Lake, headers: dict[str, str]) -> int:
    return int(up.sql("SELECT count(*) AS n FROM logs", headers=headers)[0]["n"])


def messages(up: Lake, headers: dict[str, str] | None = None) -> dict[str, int]:
    rows = up.sql("SELECT message, count(*) AS n FROM logs GROUP BY 1", headers=headers)
    return {row["message"]: row["n"] for row in rows}


def below(up: Lake) -> list[psutil.Process]:
    found = psutil.Process(up.process.popen.pid).children(recursive=True)
    return [one for one in found if one.is_running() and one.status() != "zombie"]


def pipeline_java(up: Lake) -> psutil.Process:
    (java,) = [one for one in psutil.Process(up.process.popen.pid).children() if one.name() == "java"]
    return java


def query_processes(up: Lake) -> list[psutil.Process]:
    """Those that run engine=spark; each has a JVM and workers of its own."""
    children = psutil.Process(up.process.popen.pid).children()
    return [one for one in children if "lakerunner.pipeline.ask.serve" in one.cmdline()]


def cpu_seconds(process: psutil.Process) -> float:
    """Of its JVM and workers."""
    total = 0.0
    for one in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # workers come and go
            total += sum(one.cpu_times()[:2])
    return total


def is_healthy(up: Lake) -> bool:
    return httpx.get(f"{up.url}/healthz", timeout=SOON).status_code == 200


def test_no_query_reads_the_environment(up: Lake, keys: dict[str, dict[str, str]]) -> None:
    for name in ("PATH", "LAKERUNNER_WORKER_KEY", "DATABASE_URL"):
        written = "${env:" + name + "}"
        # A set operation, which Spark SQL runs whole.
        by_text = f"SELECT '{written}' AS v FROM logs UNION SELECT '{written}' AS v"
        by_value = "SELECT $1 AS v FROM logs UNION SELECT $1 AS v"
        for query, parameters in ((by_text, {}), (by_value, {"1": written})):
            answer = by_spark(up, query, keys["basil"], parameters=parameters)
            assert answer.status_code == 200, answer.text
            assert answer.json()["rows"] == [{"v": written}]
    processes = [one for one in below(up) if one.name() == "java" or "python" in one.name()]
    assert sum(one.name() == "java" for one in processes) >= 2
    for one in processes:
        with suppress(psutil.NoSuchProcess):
            variables = one.environ()
            assert not [name for name in variables if name.startswith(("LAKERUNNER_", "AWS_", "DATABASE_"))], one
            assert SECRET not in str(variables) + str(one.cmdline())


def test_a_text_that_grows_ends_its_query_and_nothing_else(up: Lake, keys: dict[str, dict[str, str]]) -> None:
    pid = up.process.popen.pid
    with ThreadPoolExecutor(1) as pool:
        growing = pool.submit(by_spark, up, GROWTH, keys["amber"])
        push(up, ["while it grew"], keys["basil"])
        wait_until(lambda: "while it grew" in messages(up, keys["basil"]), "ingest meanwhile", SOON, up.process.text)
        answer = growing.result(900)
    assert answer.status_code == 413, answer.text
    assert "query_spark_memory 640m" in answer.json()["error"]["message"]
    assert is_healthy(up)
    wait_for_spark(up, keys["amber"])
    assert (up.process.popen.poll(), up.process.popen.pid) == (None, pid)


def test_queries_in_spark_do_not_hold_up_ingest(up: Lake, keys: dict[str, dict[str, str]]) -> None:
    """Both places are taken, by two organizations, and a third pushes: its lines are there while both queries run, at a
    priority that leaves ingest its cores. When queries shared the Spark of ingest, lines waited until they had
    ended."""
    both = ("amber", "cedar")
    with ThreadPoolExecutor(2) as pool:  # at the same time, so that each has a process
        list(pool.map(lambda name: by_spark(up, "SELECT count(*) FROM logs", keys[name]), both))
    processes = query_processes(up)
    assert len(processes) == 2
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(1))
        for name in both:
            stack.enter_context(asking(up, ENDLESS, keys[name]))
        wait_until_at_work(up, processes)
        # No kept answer serves it.
        refused = pool.submit(by_spark, up, "SELECT count(*) AS refused FROM logs", keys["amber"])
        for number in range(3):
            push(up, [line := f"beside two queries {number}"], keys["basil"])
            wait_until(lambda: line in messages(up, keys["basil"]), line, SOON, up.process.text)
        assert refused.result().status_code == 429
        assert "org_concurrent_spark_queries" in refused.result().json()["error"]["message"]
        assert query_processes(up) == processes
        wait_until_at_work(up, processes)
        assert min(one.nice() for process in processes for one in (process, *process.children())) >= 10
    # The clients have left, so their queries end and give their places back.
    for name in both:
        wait_for_spark(up, keys[name])


def wait_until_at_work(up: Lake, processes: list[psutil.Process]) -> None:
    """Until each of them has taken some CPU from now on."""
    before = {one: cpu_seconds(one) for one in processes}
    wait_until(
        lambda: all(cpu_seconds(one) > cpu + 1 for one, cpu in before.items()), "both at work", SOON, up.process.text
    )


@contextmanager
def asking(up: Lake, query: str, headers: dict[str, str]) -> Iterator[None]:
    """A client that waits for its answer in Spark, and leaves at the end."""
    connection = HTTPConnection(up.url.removeprefix("http://"))
    body = json.dumps({"query": query, "engine": "spark"})
    connection.request("POST", "/api/v1/sql", body, {"content-type": "application/json", **headers})
    try:
        yield
    finally:
        connection.close()


def test_promql_by_tasks_gives_the_same_bits(up: Lake, keys: dict[str, dict[str, str]]) -> None:
    """Pushed by HTTP, ingested, and queried by Prometheus' API and the native one."""
    made = Otlp()
    scope = made.resource(service_name="oven")
    for host in range(6):
        labels = {"host": f"h{host}", "zone": "ab"[host % 2]}
        times = [T0 + 30 * number for number in range(240)]  # two hours, and so two segments
        gauge(scope, "oven.heat", [(at, 20 + (at // 30 * (host + 3) % 97) / 7) for at in times], **labels)
        counter(scope, "oven.loaves", [(T0 - 30, at, (at - T0) * (host + 1) / 3) for at in times], CUMULATIVE, **labels)
    sent = httpx.post(f"{up.url}/v1/metrics", content=made.data, headers=PROTOBUF | keys["basil"])
    assert sent.status_code == 200, sent.text
    start, end = T0 + 600, T0 + 7000

    def by_prometheus(query: str, **more: str) -> Any:
        given = {"query": query, "start": start, "end": end, "step": 97, "stats": "all", **more}
        answer = httpx.post(f"{up.url}/prometheus/api/v1/query_range", data=given, headers=keys["basil"], timeout=900)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    def natively(query: str, **more: str) -> list[dict[str, Any]]:
        body = {"q": query, "s": 1000 * start, "e": 1000 * end, "step": "97s", **more}
        answer = httpx.post(f"{up.url}/api/v1/metrics/query", json=body, headers=keys["basil"], timeout=900)
        assert answer.status_code == 200, answer.text
        *found, last = events_of(answer)
        assert (last["type"], last["data"]["status"], last["data"]["complete"]) == ("done", "ok", True)
        return [event["data"] for event in found if event["type"] == "result"]  # progress depends on the load

    wait_until(lambda: len(by_prometheus("oven_heat")["result"]) == 6, "its series", SOON, up.process.text)
    for query in (
        "oven_heat",
        "sum by (zone) (rate(oven_loaves_total[5m]))",
        "quantile(0.9, avg_over_time(oven_heat[10m]))",
    ):
        expected, found = by_prometheus(query), by_prometheus(query, engine="spark")
        assert expected["result"]
        assert found["result"] == expected["result"]  # values are texts with all their digits
        assert all(name.startswith("spark-") for name in found["stats"]["lakerunner"]["workers"])
        assert found["stats"]["lakerunner"]["workers"]
        assert not [name for name in expected["stats"]["lakerunner"]["workers"] if name.startswith("spark-")]
        shown = natively(query)
        assert shown
        assert natively(query, engine="spark") == shown


def test_the_pipelines_java_is_started_again_and_nothing_is_lost_or_doubled(up: Lake) -> None:
    pid, java = up.process.popen.pid, pipeline_java(up)
    push(up, ["before"])
    wait_until(lambda: messages(up) == {"before": 1}, "the first line", SOON, up.process.text)
    expected = {"before": 1}
    for number, kill in enumerate((signal.SIGKILL, signal.SIGTERM)):
        names = [f"{number} {part}" for part in ("at", "after")]
        expected |= dict.fromkeys(names, 1)
        push(up, names[:1])
        java = pipeline_java(up)
        os.kill(java.pid, kill)
        push(up, names[1:])
        wait_until(lambda: messages(up) == expected, "all lines", SOON, up.process.text)  # noqa: B023
        assert is_healthy(up)
        assert pipeline_java(up).pid != java.pid
    assert (up.process.popen.poll(), up.process.popen.pid) == (None, pid)
    objects = up.objects()
    assert objects["counts"]["failed"] == objects["counts"]["seen"] == 0
