"""A lake to sweep: segments of any state and age with their files, and files that nobody knows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from lakerunner.index.commit import Commit
from lakerunner.index.index import Index
from lakerunner.model.organization import Organization
from lakerunner.model.segment import Column, Segment, segment_id
from lakerunner.model.time import DAY_NS, HOUR_NS, SECOND_NS, TimeRange
from lakerunner.objects.store import ObjectStore

ACME = Organization(UUID("aaaaaaaa-0000-4000-8000-000000000001"), "acme")
OTHER = Organization(UUID("bbbbbbbb-0000-4000-8000-000000000002"), "other")
NOW_NS = 1_766_577_600 * SECOND_NS
GRACE_NS = HOUR_NS
LONG_AGO_NS = NOW_NS - 30 * DAY_NS
SIDES = ("series.parquet", "text.bin")


@dataclass
class SweptLake:
    index: Index
    store: ObjectStore

    def segment(self, name: str, age_ns: int = DAY_NS, *, sides: Sequence[str] = SIDES, **values: Any) -> Segment:
        """A segment that ends so long before NOW_NS, live unless `state` and `ended_ns` say otherwise, with its
        files. `created_ns` is when its row was made."""
        row = {key: values.pop(key) for key in ("state", "ended_ns", "created_ns") if key in values}
        end_ns = NOW_NS - age_ns
        given: dict[str, Any] = {
            "id": segment_id(name),
            "organization": ACME.id,
            "collector": "c",
            "signal": "logs",
            "time": TimeRange(end_ns - 1000, end_ns),
            "rows": 7,
            "bytes": 10,
            "sort_version": 1,
            "columns": (Column("timestamp", ""),),
            "statistics": {"side_bytes": dict.fromkeys(sides, 3)},
        }
        made = Segment(**{**given, **values})
        self.index.commit(Commit((made,), (), ()))
        self.change(made.id, **row)
        for key, data in [(made.path, b"0123456789"), *((made.side_path(side), b"abc") for side in sides)]:
            self.put(key, data)
        return made

    def change(
        self, id_: UUID, state: str = "live", ended_ns: int | None = None, created_ns: int = LONG_AGO_NS
    ) -> None:
        with self.index.pool.connection() as connection:
            connection.execute(
                "UPDATE lrdb.segments SET state = %s, replaced_at = to_timestamp(%s::float8 / 1e9), "
                "created_at = to_timestamp(%s::float8 / 1e9) WHERE id = %s",
                (state, ended_ns, created_ns, id_),
            )

    def put(self, key: str, data: bytes = b"x", modified_ns: int = LONG_AGO_NS) -> str:
        """On a local store, as if written then."""
        self.store.put(key, data)
        path = self.store.local_path(key)
        if path is not None:
            os.utime(path, ns=(modified_ns, modified_ns))
        return key

    def orphan(
        self, name: str, modified_ns: int = LONG_AGO_NS, organization: UUID = ACME.id, collector: str = "c"
    ) -> str:
        key = f"db/{organization}/{collector}/20251124/logs/10/tbl_{segment_id('orphan', name)}.parquet"
        return self.put(key, b"orphan", modified_ns)

    def objects(self) -> set[str]:
        return {meta.key for meta in self.store.list("")}

    def states(self) -> dict[UUID, str]:
        with self.index.pool.connection() as connection:
            return dict(connection.execute("SELECT id, state FROM lrdb.segments").fetchall())


def files_of(*segments: Segment, sides: Sequence[str] = SIDES) -> set[str]:
    return {key for one in segments for key in (one.path, *(one.side_path(side) for side in sides))}
