"""What the tables of streams say of the segments of a unit, for operators that leave rows to DuckDB.

Comes in: segments and their tables. Goes out: the resources whose streams meet a selector, and their deliveries. What
always holds: no row of these segments is there twice; where that is not certain, there is no `StoredStreams`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import numpy as np
import pyarrow as pa

from lakerunner.logql.columns.deliveries import Deliveries
from lakerunner.logql.columns.selected_streams import SelectedStreams
from lakerunner.logql.stream_counts import SegmentStreams, all_deliveries, doubtful_segments
from lakerunner.model.labels.matcher import Matchers
from lakerunner.model.segment import Segment
from lakerunner.model.streams.log_record import stored_stream_of
from lakerunner.model.streams.stream_rules import StreamRules
from lakerunner.model.streams.stream_table import RESOURCE_ID
from lakerunner.plan.scan import internal_column


@dataclass(frozen=True)
class StoredStreams:
    """`resources` are the attributes and the schema URL of each resource that meets the selector, by its id. `is_all`:
    no other resource is there."""

    resources: Mapping[int, tuple[str, str]]
    is_all: bool
    deliveries: Deliveries

    def condition(self, relation: str) -> tuple[str, ...]:
        """Return SQL that leaves the rows of these resources."""
        if self.is_all:
            return ()
        ids = ", ".join(map(str, sorted(self.resources)))
        return (f'"{internal_column(relation, RESOURCE_ID)}" IN ({ids})' if ids else "false",)

    def alike(self, rules: StreamRules, names: frozenset[str]) -> Mapping[int, int]:
        """Return for each resource one that gives its rows the same labels, as far as these names go."""
        first: dict[object, int] = {}
        stream = stored_stream_of(rules)
        found = {}
        for id_, (attributes, schema_url) in sorted(self.resources.items()):
            of = stream(attributes, schema_url)
            kinds = (tuple(one for one in own.items() if one[0] in names) for own in (of.labels, of.metadata))
            found[id_] = first.setdefault((*kinds, of.is_loki, of.level), id_)
        return found

    def with_resources(self, batch: pa.RecordBatch, names: tuple[str, str]) -> pa.RecordBatch:
        """Add the attributes and the schema URL of each row's resource to a batch that has its id."""
        ids = sorted(self.resources)
        places = pa.array(np.searchsorted(np.array(ids, np.int64), batch.column(RESOURCE_ID).to_numpy()))
        for number, name in enumerate(names):
            own = pa.array([self.resources[id_][number] for id_ in ids], pa.string())
            batch = batch.append_column(name, own.take(places))
        return batch


def stored_streams(
    segments: Sequence[Segment], tables: Mapping[UUID, pa.Table], matchers: Matchers, rules: StreamRules
) -> StoredStreams | None:
    """Return None if a segment has no table, or a row may be in the segments twice."""
    if any(segment.id not in tables for segment in segments):
        return None
    selected = SelectedStreams(matchers, rules)
    resources: dict[int, tuple[str, str]] = {}

    def name(attributes: str, schema_url: str) -> str | None:
        return None if selected(attributes, schema_url) is None else ""

    names: dict[int, str | None] = {}
    views = {segment.id: SegmentStreams(tables[segment.id], names, name) for segment in segments}
    views = {id_: view for id_, view in views.items() if view.count}
    if doubtful_segments(views, ()):
        return None
    for segment in segments:
        columns = (
            tables[segment.id].column(one).to_pylist() for one in (RESOURCE_ID, "resource", "resource_schema_url")
        )
        resources.update((id_, (own, url)) for id_, own, url in zip(*columns, strict=True) if names[id_] is not None)
    return StoredStreams(resources, len(resources) == len(names), all_deliveries(list(views.values())))
