"""A small Pub/Sub for tests: a real HTTP server that speaks the documented REST of one subscription.

Google's emulator comes with its command-line tools, which no registry gives. So this is ours, written from the
documentation of `projects.subscriptions.pull` and `.acknowledge`: what it proves is our half of that documentation.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SUBSCRIPTION = "projects/shop/subscriptions/raw"
_WAIT_SECONDS = 2.0


class PubsubServer:
    """`counts`: the subscription has a dead-letter policy, so deliveries are counted and told."""

    def __init__(self) -> None:
        self.counts = False
        self.failing = 0  # so many answers say 503
        self.outstanding: dict[str, dict[str, Any]] = {}
        self.acknowledged: list[str] = []
        self.endpoint = ""
        self._number = 0
        self._changed = threading.Condition()

    def publish(self, data: bytes = b"", **attributes: str) -> str:
        """Its message id."""
        with self._changed:
            self._number += 1
            message = {"messageId": str(self._number), "publishTime": "2026-01-01T00:00:00Z"}
            if data:
                message["data"] = base64.b64encode(data).decode()
            self.outstanding[message["messageId"]] = {"message": message | {"attributes": attributes}, "attempts": 0}
            self._changed.notify_all()
            return message["messageId"]

    def pull(self, limit: int) -> dict[str, Any]:
        with self._changed:
            self._changed.wait_for(lambda: self.outstanding, _WAIT_SECONDS)
            received = []
            for name, held in list(self.outstanding.items())[:limit]:
                held["attempts"] += 1
                one = {"ackId": f"ack-{name}-{held['attempts']}", "message": held["message"]}
                received.append(one | ({"deliveryAttempt": held["attempts"]} if self.counts else {}))
        return {"receivedMessages": received} if received else {}

    def acknowledge(self, names: list[str]) -> dict[str, Any]:
        with self._changed:
            for name in names:
                message = name.split("-")[1]
                if self.outstanding.pop(message, None):
                    self.acknowledged.append(message)
        return {}


@contextmanager
def pubsub() -> Iterator[PubsubServer]:
    state = PubsubServer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            status, answer = 404, {"error": {"message": "no such method or subscription"}}
            if state.failing:
                state.failing -= 1
                status, answer = 503, {"error": {"message": "try again later"}}
            elif self.path == f"/v1/{SUBSCRIPTION}:pull":
                status, answer = 200, state.pull(body["maxMessages"])
            elif self.path == f"/v1/{SUBSCRIPTION}:acknowledge":
                status, answer = 200, state.acknowledge(body["ackIds"])
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    state.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
