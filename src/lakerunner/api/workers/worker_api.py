"""A query worker over HTTP: a work unit in, an Arrow IPC stream out, in frames that can end with an error.

POST /internal/v1/run with a unit (query/unit.py) as JSON. The response is frames of one kind byte, a four-byte
big-endian length and that many bytes: `A` is a piece of one Arrow IPC stream, `E` an error as JSON, `Z` the end, with
the account (query/account.py) as JSON. A response without `Z` is not whole. docs/formats/workers.md has all of it.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field

import orjson
import pyarrow as pa
from anyio import CapacityLimiter
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lakerunner.api.body import BodyLimit, read_body, require_json
from lakerunner.api.errors import error_body
from lakerunner.api.keyless import refuse_foreign
from lakerunner.api.openapi import ANY, JSON, WORKER_KEY, Body, Endpoint, Operation, Reply
from lakerunner.api.stopping import Stopping
from lakerunner.api.stream import Stream, blocking, in_thread
from lakerunner.model.errors import Corrupt, LakerunnerError, NotAuthenticated
from lakerunner.model.frames import Sink, frame
from lakerunner.plan.operator import Operator
from lakerunner.query.answer import Answer
from lakerunner.query.operators import OPERATORS
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
    (`api/keyless.py`). `threads`: as many as units may run or wait, and
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
        return Stream(
            _frames(answer, unit.leaf.operator, self.threads), "application/vnd.lakerunner.frames", answer.close
        )

    def _authenticate(self, request: Request) -> None:
        shown = set(request.headers.getlist(KEY_HEADER)) or {""}
        # As bytes: compare_digest raises for text beyond ASCII. Headers are decoded as Latin-1.
        if len(shown) > 1 or not hmac.compare_digest(shown.pop().encode("latin-1"), self.key.encode()):
            raise NotAuthenticated("this worker only accepts units from a query-api with its worker_key")
        if not self.key:
            refuse_foreign(request.headers.items(), self.names)


async def _frames(answer: Answer, operator: Operator, threads: CapacityLimiter) -> AsyncGenerator[bytes]:
    sink = Sink()
    try:
        schema = await blocking(lambda: answer.schema, threads)
        writer = pa.ipc.new_stream(sink, schema)

        def framed(batch: pa.RecordBatch) -> bytes:
            writer.write_batch(batch)
            return frame(b"A", sink.take())

        async for data in in_thread(map(framed, operator.encode(answer)), threads):
            yield data
    except Stopping:  # without a word: this worker is lost, and another takes the unit over
        raise
    except Exception as error:
        if not isinstance(error, LakerunnerError):
            _logger.error("unit failed", exc_info=error)
        segment = {"segment": str(error.segment)} if isinstance(error, Corrupt) and error.segment else {}
        yield frame(b"E", orjson.dumps(error_body(error) | segment))
        return
    writer.close()
    yield frame(b"A", sink.take()) + frame(b"Z", orjson.dumps(answer.account.to_json()))
