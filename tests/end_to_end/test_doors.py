"""A lake on S3 that hears of its objects from SQS alone: routes, a deletion in between, a backfill; and it is asked."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from lakerunner.objects.open import open_store
from lakerunner.objects.store import ObjectStore
from servers.aws import AwsServer, aws
from servers.lake import LAKERUNNER, Lake, clean_environment, lake, wait_until
from suites.requests import request_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@dataclass
class Notified:
    lake: Lake
    server: AwsServer
    store: ObjectStore
    environment: dict[str, str]

    def states(self) -> dict[str, tuple[str, str]]:
        return {one["key"]: (one["state"], one["reason"] or "") for one in self.lake.objects()["objects"]}

    def await_states(self, *keys: str) -> dict[str, tuple[str, str]]:
        def ended() -> bool:
            found = self.states()
            return all(found.get(key, ("seen", ""))[0] != "seen" for key in keys)

        wait_until(ended, f"{keys} ended", 60, self.lake.process.text)
        return self.states()


@pytest.fixture(scope="module")
def notified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notified]:
    with aws() as server:
        address = server.bucket("doors")
        url = server.queue("doors")
        server.notify("doors", "doors")
        route = {"prefix": "exports/{collector}/", "organization": "default", "signal": "logs"}
        environment = {
            "LAKERUNNER_STORE": address.url,
            "LAKERUNNER_STORE_OPTIONS": ",".join(f"{name}={value}" for name, value in address.options),
            "LAKERUNNER_SQS_QUEUE_URL": url,
            "LAKERUNNER_QUEUE_OPTIONS": ",".join(f"{name}={value}" for name, value in server.queue_options.items()),
            "LAKERUNNER_ROUTES": json.dumps([route]),
            "LAKERUNNER_LISTER_SECONDS": "3600",
            "LAKERUNNER_BOX_MAX_SECONDS": "3",
        }
        with lake(tmp_path_factory.mktemp("doors") / "home", environment) as running:
            yield Notified(running, server, open_store(address), environment)


def test_what_the_queue_tells_of_can_be_asked_for(notified: Notified) -> None:
    wait_until(lambda: "notifications sqs doors" in notified.lake.process.text(), "the door", 10)
    keys = [f"exports/gate/{name}.binpb" for name in ("a b", "ü+1")] + [
        "otel-raw/default/edge/x.binpb",
        "logs-raw/y.binpb",
    ]
    for number, key in enumerate(keys):
        notified.store.put(key, request_of(f"message {number}"))
    assert {notified.await_states(*keys)[key] for key in keys} == {("done", "")}
    rows = notified.lake.sql("select collector, message from logs order by message")
    assert [(row["collector"], row["message"]) for row in rows] == [
        ("gate", "message 0"),
        ("gate", "message 1"),
        ("edge", "message 2"),
        ("default", "message 3"),
    ]
    wait_until(lambda: notified.server.waiting(notified.environment["LAKERUNNER_SQS_QUEUE_URL"]) == 0, "empty", 30)


def test_an_object_that_is_deleted_before_it_is_read_says_so(notified: Notified) -> None:
    key = "otel-raw/default/edge/short-lived.binpb"
    notified.store.put(key, request_of("never read"))
    wait_until(lambda: key in notified.states(), "announced", 30, notified.lake.process.text)
    notified.store.delete([key])
    assert notified.await_states(key)[key] == (
        "failed",
        f"s3://doors holds no object {key}: it was deleted after it was announced",
    )


def test_a_backfill_into_the_running_lake(notified: Notified) -> None:
    notified.store.put("archive/2025/x.binpb", request_of("from the archive"))
    command = ["backfill", "s3://doors/archive/", "--org", "default", "--collector", "archive", "--signal", "logs"]
    done = subprocess.run(
        [*LAKERUNNER, *command, "--home", str(notified.lake.home)],
        capture_output=True,
        text=True,
        timeout=60,
        env=clean_environment(notified.environment),
        check=False,
    )
    assert (done.returncode, done.stdout.partition(",")[0]) == (0, "1 object listed: 1 announced"), done.stderr
    assert notified.await_states("archive/2025/x.binpb")["archive/2025/x.binpb"] == ("done", "")
    assert notified.lake.sql("select message from logs where collector = 'archive'") == [
        {"message": "from the archive"}
    ]
    assert (notified.lake.home / "up.log").read_text().count("Traceback") == 0
