"""Samples as they are stored, for Prometheus servers that read from the lake: /federate as text, and remote read.

An answer is complete, or an error. Warnings (it may be out of date, some of it has expired) are in the header
`lakerunner-warnings`, because neither format has a place for them.

/federate writes the latest sample of each series in Prometheus' text format 0.0.4, as Prometheus does: numbers are
untyped and have their time; a native histogram with custom buckets is written as a classic one, other native histograms
are left out, because the format cannot express them; a series that ended with a stale marker is left out. A series
without `instance` gets an empty one, so that the scraper does not add its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

import numpy as np
import pyarrow as pa
from anyio import to_thread
from starlette.responses import Response

from lakerunner.api.body import BodyLimit, content_type, read_sent, unsnappy
from lakerunner.api.formats.format import WARNINGS_HEADER, header_text
from lakerunner.api.formats.remote_read import SAMPLES, ReadQuery, read_request, read_response
from lakerunner.api.prometheus.lists import MAX_SELECTORS, read_selectors
from lakerunner.api.prometheus.request import MAX_MS, MIN_MS, Parameters
from lakerunner.api.prometheus.response import (
    BAD_DATA,
    PrometheusError,
    account_warnings,
    run_work,
)
from lakerunner.api.query_service import QueryRequest
from lakerunner.api.stream import whole_response
from lakerunner.model.labels import NAME, Labels, is_plain_label, is_plain_name, value_of
from lakerunner.model.time import MS_NS
from lakerunner.promql.language import LOOKBACK_MS
from lakerunner.promql.selection.staleness import STALE_BITS
from lakerunner.query.metric_answers import MetricsLake, StoredSamples
from lakerunner.series.histograms.histogram import Histogram, ResetHint
from lakerunner.series.numerals import number_text
from lakerunner.series.values import NO_SAMPLES, Samples

PROTOBUF = "application/x-protobuf"
BODY_LIMIT = BodyLimit(4 << 20, "the limit of a remote-read request")
EncodedSamples = tuple[bytes, list[StoredSamples]]
UTF8, UNDERSCORES = "allow-utf-8", "underscores"
_TEXT = "text/plain; version=0.0.4; charset=utf-8; escaping={}"
_INSTANCE = "instance"
_ESCAPED = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_ODD_NAME, _ODD_LABEL = re.compile(r"[^a-zA-Z0-9_:]"), re.compile(r"[^a-zA-Z0-9_]")
_Row = tuple[str, Labels, int, float | Histogram]  # metric, labels, ms, value


@dataclass(frozen=True)
class StoredSeries:
    """The endpoints that return stored samples."""

    lake: MetricsLake

    async def federate(self, asked: QueryRequest, given: Parameters) -> Response:
        selectors = read_selectors(given.all("match[]"))
        escaping = escaping_of(asked.http.headers.get("accept", ""))
        now_ns = asked.now_ns()
        now = now_ns // MS_NS

        def encode() -> EncodedSamples:
            if not selectors:
                return b"", []
            found = self.lake.samples(asked.organization, selectors, now - LOOKBACK_MS, now, now_ns)
            return exposition(found.samples, escaping), [found]

        body, found = await run_work(asked, encode)
        response = whole_response(asked.http, body, media_type(escaping))
        response.headers.update(_warning_header(found))
        return response

    async def read(self, asked: QueryRequest, _given: Parameters) -> Response:
        request, now_ns = asked.http, asked.now_ns()
        if content_type(request) not in (PROTOBUF, ""):
            raise PrometheusError(
                BAD_DATA, f"remote read takes {PROTOBUF} in a snappy block, not {content_type(request)}"
            )
        packed = await read_sent(request, BODY_LIMIT)
        queries, accepted = read_request(await to_thread.run_sync(unsnappy, packed, BODY_LIMIT))
        if accepted and SAMPLES not in accepted:
            why = (
                "remote read answers with SAMPLES, but the request accepts only STREAMED_XOR_CHUNKS: also list SAMPLES"
            )
            raise PrometheusError(BAD_DATA, why)
        if len(queries) > MAX_SELECTORS:
            raise PrometheusError(BAD_DATA, f"{len(queries)} queries in one request, the limit is {MAX_SELECTORS}")

        def encode() -> EncodedSamples:
            known: list[StoredSamples] = []
            message = read_response(self._results(asked.organization, queries, now_ns, known))
            return pa.Codec("snappy").compress(message, asbytes=True), known

        body, found = await run_work(asked, encode)
        headers = {"content-type": PROTOBUF, "content-encoding": "snappy", "cache-control": "no-store"}
        return Response(body, headers=headers | _warning_header(found))

    def _results(
        self, organization: UUID, queries: Sequence[ReadQuery], now_ns: int, known: list[StoredSamples]
    ) -> Iterator[Samples]:
        """Yield the samples of each query, one at a time; add the rest of each answer, its warnings, to `known`."""
        for query in queries:
            start, end = max(query.start_ms, MIN_MS + 1), min(query.end_ms, MAX_MS)
            if end < start:
                yield NO_SAMPLES
                continue
            found = self.lake.samples(organization, [query.matchers], start, end, now_ns)
            known.append(replace(found, samples=NO_SAMPLES))
            yield found.samples


def _warning_header(found: list[StoredSamples]) -> dict[str, str]:
    texts = [text for one in found for text in account_warnings(one.account)]
    texts += [note.message for one in found for note in one.notes]
    return {WARNINGS_HEADER: header_text("; ".join(dict.fromkeys(texts)))} if texts else {}


def escaping_of(accept: str) -> str:
    """Return how the client wants names with characters outside of [a-zA-Z0-9_:]."""
    return UTF8 if f"escaping={UTF8}" in accept.replace(" ", "").replace('"', "").lower() else UNDERSCORES


def media_type(escaping: str) -> str:
    return _TEXT.format(escaping)


def exposition(samples: Samples, escaping: str) -> bytes:
    """Write the latest sample of each series in the text format, sorted by name, with a TYPE line for each family."""
    lines: list[str] = []
    last: tuple[str, bool, bool] | None = None
    for name, labels, time, value in sorted(_latest(samples), key=lambda row: row[0]):
        histogram = isinstance(value, Histogram)
        family = name, histogram, isinstance(value, Histogram) and value.reset_hint == ResetHint.GAUGE
        if family != last:
            lines.append(f"# TYPE {_named(name, escaping)} {'histogram' if histogram else 'untyped'}")
            last = family
        lines += (
            _classic(name, labels, time, value, escaping)
            if isinstance(value, Histogram)
            else [f"{_series(name, labels, escaping)} {number_text(value)} {time}"]
        )
    return "".join(f"{line}\n" for line in lines).encode()


def _latest(samples: Samples) -> Iterator[_Row]:
    """Yield the latest sample of each series, without stale markers and histograms that the format cannot express."""
    bits = np.ascontiguousarray(samples.values).view(np.uint64)
    for row, labels in enumerate(samples.labels):
        place = int(samples.offsets[row + 1]) - 1
        name = value_of(labels, NAME)
        if place < samples.offsets[row] or not name:
            continue
        histogram = None if samples.histograms is None else samples.histograms[place]
        if histogram is None:
            if bits[place] != STALE_BITS:
                yield name, labels, int(samples.times[place]), float(samples.values[place])
        elif histogram.is_custom and np.float64(histogram.sum).view(np.uint64) != STALE_BITS:
            yield name, labels, int(samples.times[place]), histogram


def _classic(name: str, labels: Labels, time: int, histogram: Histogram, escaping: str) -> list[str]:
    """Write a native histogram with custom buckets as a classic one: cumulative _bucket, _sum and _count."""
    counts = dict(zip(histogram.positive.indexes.tolist(), histogram.positive.counts.tolist(), strict=True))
    below, lines = 0.0, []
    for index, bound in enumerate(histogram.custom_values):
        below += counts.get(index, 0.0)
        lines.append((f"{name}_bucket", number_text(bound), below))
    lines.append((f"{name}_bucket", "+Inf", histogram.count))
    lines += [(f"{name}_sum", "", histogram.sum), (f"{name}_count", "", histogram.count)]
    return [f"{_series(metric, labels, escaping, le)} {number_text(number)} {time}" for metric, le, number in lines]


def _series(name: str, labels: Labels, escaping: str, le: str = "") -> str:
    inside = [f'{_label(key, escaping)}="{value.translate(_ESCAPED)}"' for key, value in labels if key != NAME]
    inside += [] if value_of(labels, _INSTANCE) else [f'{_INSTANCE}=""']
    inside += [f'le="{le}"'] if le else []
    shown = _named(name, escaping)
    return f"{{{','.join([shown, *inside])}}}" if shown.startswith('"') else f"{shown}{{{','.join(inside)}}}"


def _named(name: str, escaping: str) -> str:
    if is_plain_name(name):
        return name
    return f'"{name.translate(_ESCAPED)}"' if escaping == UTF8 else _underscored(name, _ODD_NAME)


def _label(name: str, escaping: str) -> str:
    if is_plain_label(name):
        return name
    return f'"{name.translate(_ESCAPED)}"' if escaping == UTF8 else _underscored(name, _ODD_LABEL)


def _underscored(name: str, odd: re.Pattern[str]) -> str:
    found = odd.sub("_", name)
    return f"_{found[1:]}" if found[:1].isdigit() else found
