"""Pushing to a whole lake: what was pushed is there once, also when the lake is killed while it takes it."""

from __future__ import annotations

import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from servers.lake import Lake, lake, wait_until
from suites.requests import TIME_NS, request_of

REQUESTS = 300
CLIENTS = 8
PROTOBUF, JSON = {"content-type": "application/x-protobuf"}, {"content-type": "application/json"}


def otlp(url: str, number: int) -> httpx.Response:
    return httpx.post(f"{url}/v1/logs", content=request_of(f"otlp {number}"), headers=PROTOBUF, timeout=30)


def loki(url: str, number: int) -> httpx.Response:
    stream = {"stream": {"app": "cart", "pod": "cart-1"}, "values": [[str(TIME_NS + number), f"loki {number}"]]}
    body = json.dumps({"streams": [stream]}).encode()
    return httpx.post(f"{url}/loki/api/v1/push", content=body, headers=JSON, timeout=30)


def push(url: str, number: int) -> httpx.Response:
    return (otlp if number % 2 else loki)(url, number)


def until_accepted(url: str, number: int) -> None:
    """As senders do: again, as long as the answer says so."""
    deadline = time.monotonic() + 60
    while (answer := push(url, number)).status_code in (429, 503):
        assert time.monotonic() < deadline, answer.text
        time.sleep(int(answer.headers["retry-after"]) / 2)
    assert answer.status_code in (200, 204), answer.text


def lines(running: Lake) -> dict[str, int]:
    rows = running.sql("select message, count(*) as n from logs group by 1")
    return {row["message"]: row["n"] for row in rows}


@pytest.mark.slow
def test_a_lake_that_is_killed_loses_and_doubles_nothing_that_is_sent_again(tmp_path: Path) -> None:
    home = tmp_path / "home"
    accepted: list[int] = []
    with lake(home) as first:
        otlp(first.url, 1)  # loads what the first request needs
        killed = threading.Event()

        def sender(numbers: range) -> None:
            for number in numbers:
                try:
                    if push(first.url, number).status_code in (200, 204):
                        accepted.append(number)
                except httpx.TransportError:
                    if killed.is_set():
                        return
                    raise

        with ThreadPoolExecutor(CLIENTS) as senders:
            running = [senders.submit(sender, range(start, REQUESTS, CLIENTS)) for start in range(CLIENTS)]
            wait_until(lambda: len(accepted) >= REQUESTS // 4, "some requests", 60, first.process.text)
            killed.set()
            first.process.kill()
            for each in running:
                each.result(60)
    assert REQUESTS // 4 <= len(accepted) < REQUESTS
    with lake(home) as second:
        with ThreadPoolExecutor(CLIENTS) as senders:  # all of them: a sender may not have seen our answer
            list(senders.map(lambda number: until_accepted(second.url, number), range(REQUESTS)))
        expected = {f"{'otlp' if number % 2 else 'loki'} {number}": 1 for number in range(REQUESTS)}
        wait_until(lambda: sum(lines(second).values()) >= REQUESTS, "all lines", 60, second.process.text)
        assert lines(second) == expected
        assert second.objects("failed")["counts"]["failed"] == 0


def waiting(running: Lake) -> int:
    metrics = httpx.get(f"{running.url}/metrics", timeout=10).text
    (count,) = re.findall(r"^lakerunner_push_waiting_requests (\S+)$", metrics, re.M)
    return int(float(count))


@pytest.mark.slow
def test_a_stop_keeps_what_was_taken_and_labels_can_be_asked(tmp_path: Path) -> None:
    home = tmp_path / "home"
    query = "select message, service_name, resource_attrs['pod'] as pod from logs order by 1"
    with lake(home, {"LAKERUNNER_PUSH_MAX_SECONDS": "600"}) as first, ThreadPoolExecutor(2) as senders:
        answers = [senders.submit(send, first.url, 7) for send in (otlp, loki)]
        wait_until(lambda: waiting(first) == 2, "two requests in the door", 60, first.process.text)
        assert first.process.stop() == 0
        assert sorted(answer.result(30).status_code for answer in answers) == [200, 204]
    with lake(home) as second:
        wait_until(lambda: len(second.sql(query)) == 2, "both lines", 60, second.process.text)
        assert second.sql(query) == [
            {"message": "loki 7", "service_name": "cart", "pod": "cart-1"},
            {"message": "otlp 7", "service_name": "cart", "pod": None},
        ]
