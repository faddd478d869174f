"""Samples as they are stored, for Prometheus servers that read from the lake: /federate in text, and remote read.

An answer is whole, or an error. What a reader must know of it beyond (that it may be old, that some of it has expired)
is in the header `lakerunner-warnings`: neither form has a place for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from lakerunner.api.body import BodyLimit, content_type, read_sent, unsnappy
from lakerunner.api.formats.exposition import escaping_of, exposition, media_type
from lakerunner.api.formats.format import WARNINGS_HEADER
from lakerunner.api.formats.remote_read import SAMPLES, ReadQuery, read_request, read_response
from lakerunner.api.limits import QueryLimits
from lakerunner.api.prometheus.error_types import BAD_DATA, Refused, running
from lakerunner.api.prometheus.lists import MAX_SELECTORS, read_selectors
from lakerunner.api.prometheus.request import MAX_MS, MIN_MS, Parameters
from lakerunner.api.prometheus.response import account_warnings, whole
from lakerunner.api.stream import while_connected
from lakerunner.model.caller import Caller
from lakerunner.model.time import MS_NS
from lakerunner.promql.language import LOOKBACK_MS
from lakerunner.query.metrics.answer import MetricsLake, StoredSamples
from lakerunner.series.values import NO_SAMPLES, Samples

PROTOBUF = "application/x-protobuf"
BODY_LIMIT = BodyLimit(4 << 20, "the limit of a remote-read request")
Made = tuple[bytes, list[StoredSamples]]


@dataclass(frozen=True)
class StoredSeries:
    lake: MetricsLake
    limits: QueryLimits

    async def federate(self, request: Request, caller: Caller, given: Parameters, now_ns: int) -> Response:
        selectors = read_selectors(given.all("match[]"))
        escaping = escaping_of(request.headers.get("accept", ""))
        now = now_ns // MS_NS

        def made() -> Made:
            if not selectors:
                return b"", []
            found = self.lake.samples(caller.organization.id, selectors, now - LOOKBACK_MS, now, now_ns)
            return exposition(found.samples, escaping), [found]

        body, found = await self._within(request, caller, made)
        response = whole(request, body, media_type(escaping))
        response.headers.update(_warned(found))
        return response

    async def read(self, request: Request, caller: Caller, _given: Parameters, now_ns: int) -> Response:
        if content_type(request) not in (PROTOBUF, ""):
            raise Refused(BAD_DATA, f"remote read takes {PROTOBUF} in a snappy block, not {content_type(request)}")
        packed = await read_sent(request, BODY_LIMIT)
        queries, accepted = read_request(await to_thread.run_sync(unsnappy, packed, BODY_LIMIT))
        if accepted and SAMPLES not in accepted:
            why = (
                "remote read answers with SAMPLES, but the request accepts only STREAMED_XOR_CHUNKS: also list SAMPLES"
            )
            raise Refused(BAD_DATA, why)
        if len(queries) > MAX_SELECTORS:
            raise Refused(BAD_DATA, f"{len(queries)} queries in one request, the limit is {MAX_SELECTORS}")

        def made() -> Made:
            known: list[StoredSamples] = []
            message = read_response(self._results(caller, queries, now_ns, known))
            return pa.Codec("snappy").compress(message, asbytes=True), known

        body, found = await self._within(request, caller, made)
        headers = {"content-type": PROTOBUF, "content-encoding": "snappy", "cache-control": "no-store"}
        return Response(body, headers=headers | _warned(found))

    def _results(
        self, caller: Caller, queries: Sequence[ReadQuery], now_ns: int, known: list[StoredSamples]
    ) -> Iterator[Samples]:
        """The samples of each query, one after the other; the rest of what was found goes into `known`."""
        for query in queries:
            start, end = max(query.start_ms, MIN_MS + 1), min(query.end_ms, MAX_MS)
            if end < start:
                yield NO_SAMPLES
                continue
            found = self.lake.samples(caller.organization.id, [query.matchers], start, end, now_ns)
            known.append(replace(found, samples=NO_SAMPLES))
            yield found.samples

    async def _within(self, request: Request, caller: Caller, work: Callable[[], Made]) -> Made:
        """The work is not stopped by a client that leaves; its slot is held until it has ended."""
        with await while_connected(request, self.limits.slot(caller)):
            try:
                return await to_thread.run_sync(work)
            except Exception as error:
                raise running(error) from error


def _warned(found: list[StoredSamples]) -> dict[str, str]:
    texts = [text for one in found for text in account_warnings(one.account)]
    texts += [note.message for one in found for note in one.notes]
    header = " ".join("; ".join(dict.fromkeys(texts)).split()).encode("ascii", "replace").decode()
    return {WARNINGS_HEADER: header} if texts else {}
