"""A query worker over HTTP: POST /internal/v1/run with a unit (query/unit.py) as JSON, answered by the frames of
query/answer_frames.py. docs/formats/workers.md has all of it.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from anyio import CapacityLimiter
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lakerunner.api.auth import refuse_foreign
from lakerunner.api.body import BodyLimit, read_body, require_json
from lakerunner.api.errors import log_detail
from lakerunner.api.openapi import JSON, WORKER_KEY, Body, Endpoint, Operation, Reply
from lakerunner.api.schema import ANY
from lakerunner.api.stream import Stream, in_thread
from lakerunner.model.errors import LakerunnerError, NotAuthenticated
from lakerunner.plan.operator import Operator
from lakerunner.query.answer import Answer
from lakerunner.query.answer_frames import answer_frames
from lakerunner.query.operator_table import OPERATORS
from lakerunner.query.unit import Unit

UNIT_LIMIT = BodyLimit(64 << 20, "a unit of work; the setting unit_max_bytes makes units smaller")
KEY_HEADER = "x-lakerunner-worker-key"
RUN = Operation(
    tag="internal",
    summary="Compute one unit of a query",
    body={JSON: Body()},
    replies={
        200: Reply("Frames of rows, ended by an error or an end frame.", {"application/vnd.lakerunner.frames": ANY})
    },
    errors=(401, 403, 413, 415, 422, 503),
    security=WORKER_KEY,
)
_logger = logging.getLogger("lakerunner.api.worker")


@dataclass(frozen=True)
class WorkerApi:
    """`key` is the secret of this cluster; empty on loopback only, where `names` are further names of this machine
    (`api/auth.py`). `threads`: as many as units may run or wait, and
    a few; with fewer, units that wait would keep those that run from being read."""

    run: Callable[[Unit], Answer]
    key: str
    threads: CapacityLimiter
    names: frozenset[str] = frozenset()
    operators: Mapping[str, type[Operator]] = field(default_factory=lambda: OPERATORS)

    def routes(self) -> list[Route]:
        return [Endpoint("/internal/v1/run", self.execute, POST=RUN)]

    async def execute(self, request: Request) -> Response:
        self._authenticate(request)
        require_json(request)
        unit = Unit.from_bytes(await read_body(request, UNIT_LIMIT), self.operators)
        answer = self.run(unit)
        # A worker that stops is cut off without a frame of its own: it is lost, and another takes the unit over.
        frames = in_thread(answer_frames(answer, unit.leaf.operator, _report), self.threads)
        return Stream(frames, "application/vnd.lakerunner.frames", answer.close)

    def _authenticate(self, request: Request) -> None:
        shown = set(request.headers.getlist(KEY_HEADER)) or {""}
        # As bytes: compare_digest raises for text beyond ASCII. Headers are decoded as Latin-1.
        if len(shown) > 1 or not hmac.compare_digest(shown.pop().encode("latin-1"), self.key.encode()):
            raise NotAuthenticated("this worker only accepts units from a query-api with its worker_key")
        if not self.key:
            refuse_foreign(request.headers.items(), self.names)


def _report(error: Exception) -> None:
    if not isinstance(error, LakerunnerError):
        _logger.error("unit failed", exc_info=error)
    log_detail(error)
