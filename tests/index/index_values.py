"""Values that the index tests are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any, TypeVar
from uuid import UUID

from lakerunner.index.index import Index
from lakerunner.index.sources import Arrival
from lakerunner.model.organization import Organization
from lakerunner.model.segment import Column, Segment, segment_id
from lakerunner.model.source import SourceObject
from lakerunner.model.time import TimeRange

ACME = Organization(UUID("aaaaaaaa-0000-4000-8000-000000000001"), "acme")
OTHER = Organization(UUID("bbbbbbbb-0000-4000-8000-000000000002"), "other")

T = TypeVar("T")


def source(number: int, **changes: Any) -> SourceObject:
    values = {
        "bucket": "lake",
        "key": f"otel-raw/acme/c/logs_{number}.binpb",
        "etag": f"e{number}",
        "size": 10 + number,
    }
    return SourceObject(**{**values, "modified_ns": 1000 + number, **changes})


def arrival(item: SourceObject, organization: Organization = ACME) -> Arrival:
    return Arrival(item, organization.id, "c", "logs", "objstore.ingest.logs", f"ingest {item.key!a}".encode())


def segment(name: str, start: int = 0, end: int = 10, **changes: Any) -> Segment:
    values: dict[str, Any] = {
        "id": segment_id(name),
        "organization": ACME.id,
        "collector": "c",
        "signal": "logs",
        "time": TimeRange(start, end),
        "rows": 7,
        "bytes": 100,
        "sort_version": 1,
        "columns": (Column("timestamp", ""), Column("attributes.user", "string")),
    }
    return Segment(**{**values, **changes})


def at_once(work: Iterable[Callable[[], T]]) -> list[T | BaseException]:
    """Run all of it in threads that start together; what each returned or raised."""
    jobs = list(work)
    barrier = Barrier(len(jobs))

    def run(job: Callable[[], T]) -> T | BaseException:
        barrier.wait(timeout=30)
        try:
            return job()
        except BaseException as error:
            return error

    with ThreadPoolExecutor(len(jobs)) as threads:
        return list(threads.map(run, jobs))


def total(results: Iterable[int | BaseException]) -> int:
    """Add up what `at_once` returned; raise the first error."""
    numbers = 0
    for result in results:
        if isinstance(result, BaseException):
            raise result
        numbers += result
    return numbers


def outbox_size(index: Index) -> int:
    return count(index, "SELECT count(*) FROM lrdb.outbox")


def count(index: Index, query: str) -> int:
    with index.pool.connection() as connection:
        row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return int(row[0])
