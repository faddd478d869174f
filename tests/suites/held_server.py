"""An HTTP server whose app can be held up, to try what clients can take of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from anyio import to_thread
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lakerunner.api.app import build_app
from lakerunner.api.body import BodyLimit, read_body
from lakerunner.api.http_protocol import Bounds
from lakerunner.api.server import HttpServer, bind
from lakerunner.api.tls import Certificate
from suites.certificates import throw_away

LARGE = 32 << 20  # more than sockets hold
LIMIT = BodyLimit(1 << 20, "the limit of a test")


@dataclass
class Served:
    """A server whose app echoes a body (/echo) or the names of headers after a body (/headers), or waits for `release`
    before it reads one (/wait) or after it (/hold, for the organization that X-Organization numbers)."""

    url: str = ""
    stop_seconds: float = 0.0  # what its end took
    release: threading.Event = field(default_factory=threading.Event)
    waiting: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    left: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    async def quick(self, _request: Request) -> Response:
        return Response(b"ok")

    async def large(self, _request: Request) -> Response:
        return Response(bytes(LARGE))

    async def echo(self, request: Request) -> Response:
        try:
            return Response(await read_body(request, LIMIT))
        except ClientDisconnect:
            self.left.release()
            raise

    async def headers(self, request: Request) -> Response:
        await read_body(request, LIMIT)
        return JSONResponse([name.decode() for name, _ in request.scope["headers"]])

    async def hold(self, request: Request) -> Response:
        if named := request.headers.get("x-organization"):
            request.state.organization = UUID(int=int(named))
        body = await read_body(request, LIMIT)
        self.waiting.release()
        await to_thread.run_sync(self.release.wait, 60)
        return Response(str(len(body)))

    async def wait(self, request: Request) -> Response:
        self.waiting.release()
        await to_thread.run_sync(self.release.wait, 60)
        return Response(str(len(await read_body(request, LIMIT))))

    def routes(self) -> list[Route]:
        handlers = (self.quick, self.large, self.echo, self.headers, self.wait, self.hold)
        return [Route(f"/{handler.__name__}", handler, methods=["GET", "POST"]) for handler in handlers]


@contextmanager
def served(
    bounds: Bounds, scheme: str = "http", *, certificate: Certificate | None = None, **limits: Any
) -> Iterator[Served]:
    """With https and no certificate, that of the throw-away authority."""
    made = Served()
    if scheme == "https":
        certificate = certificate or throw_away().files.loaded
    app, listener = build_app(made.routes(), **limits), bind("127.0.0.1", 0)
    server = HttpServer(app, listener, lambda _: None, bounds, certificate)
    server.start()
    made.url = server.url
    try:
        yield made
    finally:
        made.release.set()
        began = time.monotonic()
        server.stop()
        made.stop_seconds = time.monotonic() - began
