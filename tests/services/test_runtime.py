"""The runtime tries again what is unavailable, stops on a bug, and closes in order."""

from __future__ import annotations

import io
import json
import threading

from lakerunner.model.errors import Unavailable
from lakerunner.services.logs import Log, configure_logs
from lakerunner.services.runtime import Runtime


def test_an_unavailable_dependency_is_tried_again_and_shows_in_health() -> None:
    runtime = Runtime("test")
    calls: list[int] = []
    recovered = threading.Event()
    seen: list[dict[str, object]] = []

    def step() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise Unavailable("the store is away")
        if len(calls) == 2:
            seen.append(runtime.health.report())
        recovered.set()
        runtime.stopping.wait(0.01)

    runtime.loop("worker", step)
    assert recovered.wait(60)
    assert seen == [{"status": "degraded", "parts": {"worker": "the store is away"}}]
    assert runtime.shut_down() == 0


def test_a_bug_in_a_loop_stops_the_process_with_exit_code_1() -> None:
    runtime = Runtime("test")

    def step() -> None:
        raise ZeroDivisionError("oops")

    runtime.loop("worker", step)
    assert runtime.stopping.wait(60)
    assert not runtime.health.live
    assert runtime.health.report()["failed"] == "worker: oops"
    assert runtime.shut_down() == 1


def test_parts_close_last_opened_first_after_loops_have_ended() -> None:
    runtime = Runtime("test")
    order: list[str] = []
    began = threading.Event()

    def step() -> None:
        began.set()
        runtime.stopping.wait(60)
        order.append("loop")

    def broken() -> None:
        order.append("broken")
        raise OSError("cannot close")

    runtime.defer("first", lambda: order.append("first"))
    runtime.defer("broken", broken)
    runtime.defer("last", lambda: order.append("last"))
    runtime.on_stop(lambda: order.append("interrupt"))
    runtime.loop("worker", step)
    assert began.wait(60)
    assert runtime.shut_down() == 0
    assert sorted(order[:2]) == ["interrupt", "loop"]
    assert order[2:] == ["last", "broken", "first"]


def test_a_log_line_is_a_sentence_with_fields() -> None:
    stream = io.StringIO()
    configure_logs("info", stream)
    Log("ingest").info("box ingested", rows=3, key="a/b")
    Log("ingest").debug("not shown")
    (line,) = stream.getvalue().splitlines()
    entry = json.loads(line)
    assert entry.pop("time").endswith("Z")
    assert entry == {"level": "info", "part": "ingest", "message": "box ingested", "rows": 3, "key": "a/b"}
