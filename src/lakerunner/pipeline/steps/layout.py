"""One segment's columns: decided once for the whole segment, then built for one run of rows after the other.

Comes in: Rows and the row numbers of the segment in their order. Goes out: its Arrow schema and, for any run of these
rows, a record batch of it. The columns are those of the signal, then the shredded attributes sorted by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lakerunner.model.segment import Column as SegmentColumn
from lakerunner.model.signal import OVERFLOW, SCOPES, Scope, SignalSpec
from lakerunner.pipeline.read.rows import Attached, Coded, Column, Numbers, Rows, Texts
from lakerunner.pipeline.steps.shred import COLUMN_TYPES, Plan, owned_columns, place, plan_columns
from lakerunner.pipeline.steps.take import Slices, count_distinct, map_array, slices_array, slices_of, take

# An attribute of the rows themselves that fewer of them have than one in this many stays in the map.
RARE = 200
# A column is dictionary-encoded unless more than this share of a sample of its values are different ones.
MOST_DISTINCT = 0.7
SAMPLE_ROWS = 2048
# Where more resources or scopes than this have rows in a segment, theirs are placed like attributes of the rows.
MAX_OWNERS = 10_000


@dataclass(frozen=True)
class OwnedMap:
    """The map of row r is maps[place[owner[r]]]."""

    maps: pa.Array
    place: Any
    owner: Any


@dataclass(frozen=True)
class Layout:
    """`columns` and `maps` are ready for any run: what a row has from itself, its resource or its scope. The attributes
    of the scopes in `by_run` are placed run by run. `few` are the columns with few different values."""

    rows: Rows
    schema: pa.Schema
    few: frozenset[str]
    shredded: tuple[SegmentColumn, ...]
    columns: Mapping[str, Column]
    maps: Mapping[str, OwnedMap]
    plans: Mapping[Scope, Plan]
    by_run: frozenset[Scope]


def lay_out(rows: Rows, order: Any, spec: SignalSpec) -> Layout:
    """The layout of the segment that these rows are."""
    columns: dict[str, Column] = {name: rows.columns[name] for name in spec.schema.names if name in rows.columns}
    maps: dict[str, OwnedMap] = {}
    plans: dict[Scope, Plan] = {}
    own: dict[Scope, Plan] = {}
    for scope in SCOPES:
        attached = rows.attached[scope.map_column]
        plans[scope], owners = _plan(attached, rows.data, order)
        if owners is None:
            own[scope] = plans[scope]
            continue
        placed = place(attached, plans[scope], owners)
        named = zip(plans[scope].keys, owned_columns(attached, placed, rows.data, owners), strict=True)
        columns |= {scope.prefix + key: column for key, column in named}
        if len(placed.rest):
            position = np.zeros(len(attached.first), np.int64)
            position[owners] = np.arange(len(owners))
            array = map_array(attached, placed.rest, placed.rest_first, rows.data)
            maps[scope.map_column] = OwnedMap(array, position, attached.owner)
    kinds = {scope.prefix + key: kind for scope, plan in plans.items() for key, kind in plan.named_kinds()}
    fields = [*spec.schema, *(pa.field(name, COLUMN_TYPES[kind][1]) for name, kind in kinds.items())]
    few = _few(rows, columns, own, order[:: -(-len(order) // SAMPLE_ROWS)].copy())
    schema = pa.schema(
        field.with_type(pa.dictionary(pa.int32(), field.type)) if field.name in few and _textual(field.type) else field
        for field in fields
    )
    shredded = tuple(SegmentColumn(name, COLUMN_TYPES[kind][0]) for name, kind in kinds.items())
    return Layout(rows, schema, few, shredded, columns, maps, plans, frozenset(own))


def _plan(attached: Attached, data: Any, order: Any) -> tuple[Plan, Any]:
    """(plan, the owners of these rows), the owners None where attributes are to be placed run by run."""
    if attached.owner is None:
        once = np.ones(len(order), np.int64)
        return plan_columns(attached, data, order, once, -(-len(order) // RARE)), None
    rows_of = np.bincount(attached.owner[order], minlength=len(attached.first) - 1)
    owners = np.flatnonzero(rows_of).astype(np.int32)
    plan = plan_columns(attached, data, owners, rows_of[owners], 1)
    return plan, None if len(owners) > MAX_OWNERS else owners


def batch_of(layout: Layout, order: Any) -> pa.RecordBatch:
    """These rows of the segment, in this order."""
    rows = layout.rows
    slices: dict[str, Slices] = {}
    arrays: dict[str, pa.Array] = {}
    for scope, plan in layout.plans.items():
        attached = rows.attached[scope.map_column]
        if scope in layout.by_run:
            placed = place(attached, plan, attached.owners_of(order))
            slices |= {scope.prefix + key: column for key, column in zip(plan.keys, placed.columns, strict=True)}
            arrays[scope.map_column] = map_array(attached, placed.rest, placed.rest_first, rows.data)
        elif scope.map_column in layout.maps:
            owned = layout.maps[scope.map_column]
            arrays[scope.map_column] = owned.maps.take(pa.array(owned.place[owned.owner[order]]))
        else:
            arrays[scope.map_column] = _empty_maps(len(order))
    for field in layout.schema:
        if field.name in layout.columns:
            arrays[field.name] = take(layout.columns[field.name], rows.data, order, field.type)
        elif field.name in slices:
            arrays[field.name] = slices_array(slices[field.name], rows.data, field.type)
    return pa.RecordBatch.from_arrays([arrays[name] for name in layout.schema.names], schema=layout.schema)


def _empty_maps(count: int) -> pa.Array:
    nothing = pa.array([], pa.string())
    return pa.MapArray.from_arrays(pa.array(np.zeros(count + 1, np.int32)), nothing, nothing).cast(OVERFLOW)


def _textual(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _few(rows: Rows, columns: Mapping[str, Column], own: Mapping[Scope, Plan], sample: Any) -> frozenset[str]:
    """The columns with few different values among the rows of the sample; `own` plans what is placed by run."""
    shares = {name: _share(column, rows.data, sample) for name, column in columns.items()}
    for scope, plan in own.items():
        attached = rows.attached[scope.map_column]
        placed = place(attached, plan, attached.owners_of(sample))
        for key, slices in zip(plan.keys, placed.columns, strict=True):
            shares[scope.prefix + key] = _share_of(slices, rows.data)
    return frozenset(name for name, share in shares.items() if share <= MOST_DISTINCT)


def _share(column: Column, data: Any, sample: Any) -> float:
    match column:
        case Coded():
            return 0.0
        case Texts():
            return _share_of(slices_of(column, sample), data)
        case Numbers(values, _, owner):
            return len(np.unique(values[sample if owner is None else owner[sample]])) / len(sample)
        case _:
            return 1.0


def _share_of(slices: Slices, data: Any) -> float:
    distinct, values = count_distinct(slices, data)
    return distinct / values if values else 0.0
