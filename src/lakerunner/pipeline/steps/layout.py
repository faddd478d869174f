"""One segment's columns: decided once for the whole segment, then built for one run of rows after the other.

Comes in: Rows and the row numbers of the segment in their order. Goes out: its Arrow schema and, for any run of these
rows, a record batch of it. The columns are those of the signal, but for nullable ones that no row fills, then the
shredded attributes sorted by name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lakerunner.model.segment import Column as SegmentColumn
from lakerunner.model.signal import ATTRIBUTES, OVERFLOW, SCOPES, Scope, SignalSpec
from lakerunner.pipeline.arrays import CODED_TEXT
from lakerunner.pipeline.read.rows import Attached, Coded, Column, Json, Lists, Numbers, Rows, Structs, Texts
from lakerunner.pipeline.read.walk import ABSENT
from lakerunner.pipeline.steps.shred import COLUMN_TYPES, Plan, owned_columns, place, plan_columns
from lakerunner.pipeline.steps.take import (
    Slices,
    coded_array,
    count_distinct,
    flattened,
    map_array,
    mask_of,
    slices_array,
    slices_of,
    take,
)

# An attribute of the rows themselves that fewer of them have than one in this many stays in the map.
RARE = 200
# A column is dictionary-encoded unless more than this share of a sample of its values are different ones.
MOST_DISTINCT = 0.7
SAMPLE_ROWS = 2048
# Where more resources or scopes than this have rows in a segment, theirs are placed like attributes of the rows.
MAX_OWNERS = 10_000
# Shared maps are built of codes: a row repeats the numbers of its owner's keys and texts, never the texts.
CODED_MAP = pa.map_(CODED_TEXT, CODED_TEXT)
_ENTRY_BYTES = 16  # of memory that an entry takes in each row that has it
_FREE_ENTRIES = 64  # of a row whose map is made for its run only


@dataclass(frozen=True)
class OwnedMap:
    """The map of row r is number `place[owner[r]]` of some, `place[r]` where `owner` is None; -1 is null. Map i has the
    entries first[i] to first[i + 1] of `keys` and `texts`."""

    first: Any
    keys: Coded
    texts: Coded
    place: Any
    owner: Any = None

    @classmethod
    def of(cls, maps: pa.Array, place: Any, owner: Any = None) -> OwnedMap:
        # An empty map behind the others stands for null.
        first = np.append(maps.offsets.to_numpy(), len(maps.keys)).astype(np.int32)
        return cls(first, _coded(maps.keys), _coded(maps.items), place, owner)

    def take(self, order: Any) -> pa.Array:
        """The maps of these rows, as CODED_MAP."""
        place = self._places(order)
        entries, offsets = flattened(self.first, place)
        pairs = [coded_array(column.codes[entries], column.values) for column in (self.keys, self.texts)]
        struct = pa.StructArray.from_arrays(pairs, fields=[CODED_MAP.key_field, CODED_MAP.item_field])
        buffers = [mask_of(place < len(self.first) - 2), pa.py_buffer(offsets)]
        return pa.Array.from_buffers(CODED_MAP, len(order), buffers, children=[struct])

    def sizes(self, order: Any) -> Any:
        """The bytes of memory that the maps of these rows take beside their texts."""
        place = self._places(order)
        return _ENTRY_BYTES * (self.first[place + 1] - self.first[place]).astype(np.int64)

    def _places(self, order: Any) -> Any:
        place = self.place[order if self.owner is None else self.owner[order]]
        return np.where(place < 0, len(self.first) - 2, place).astype(np.int64)


def _coded(texts: pa.Array) -> Coded:
    encoded = texts.dictionary_encode()
    return Coded(encoded.indices.to_numpy(), encoded.dictionary)


@dataclass(frozen=True)
class Layout:
    """`columns` and `maps` are ready for any run: what a row has from itself, its resource or its scope. The attributes
    of the scopes in `by_run` are placed run by run. `few` are the columns with few different values; `stored` is what
    the index is told of the columns."""

    rows: Rows
    schema: pa.Schema
    few: frozenset[str]
    stored: tuple[SegmentColumn, ...]
    columns: Mapping[str, Column]
    maps: Mapping[str, OwnedMap]
    plans: Mapping[Scope, Plan]
    by_run: frozenset[Scope]

    def sizes(self, order: Any) -> Any:
        """The bytes of input of these rows, and what the maps that they share with others take in each of them."""
        sizes = self.rows.sizes[order].astype(np.int64)
        for owned in self.maps.values():
            sizes += owned.sizes(order)
        for scope in self.by_run:
            attached = self.rows.attached[scope.map_column]
            if attached.owner is not None:
                entries = np.diff(attached.first)[attached.owner[order]].astype(np.int64)
                sizes += _ENTRY_BYTES * np.maximum(entries - _FREE_ENTRIES, 0)
        return sizes

    def most_different(self, names: Collection[str], groups: Sequence[Any]) -> dict[str, int]:
        """The most different values that one of these row groups has in each of these columns of texts, of those that
        the segment has."""
        found: dict[str, int] = {}
        for name in names:
            if name in self.schema.names:
                column = self.rows.column(name, Texts)
                found[name] = max(count_distinct(slices_of(column, one), self.rows.data)[0] for one in groups)
        return found


def lay_out(rows: Rows, order: Any, spec: SignalSpec) -> Layout:
    """The layout of the segment that these rows are."""
    columns: dict[str, Column] = {
        field.name: rows.columns[field.name]
        for field in spec.schema
        if field.name in rows.columns and not (field.nullable and _is_empty(rows.columns[field.name], order))
    }
    maps = {
        name: OwnedMap.of(column.values, column.codes, column.owner)
        for name, column in columns.items()
        if isinstance(column, Coded) and pa.types.is_map(column.values.type)
    }
    plans: dict[Scope, Plan] = {}
    own: dict[Scope, Plan] = {}
    for scope in SCOPES:
        attached = rows.attached[scope.map_column]
        plans[scope], owners = _plan(attached, rows.data, order, -(-len(order) // RARE) if scope is ATTRIBUTES else 1)
        if owners is None:
            own[scope] = plans[scope]
            continue
        placed = place(attached, plans[scope], owners)
        owned = owned_columns(placed, rows.data, owners, len(attached.first) - 1, attached.owner)
        named = zip(plans[scope].keys, owned, strict=True)
        columns |= {scope.prefix + key: column for key, column in named}
        if len(placed.rest):
            position = np.zeros(len(attached.first), np.int64)
            position[owners] = np.arange(len(owners))
            array = map_array(attached, placed.rest, placed.rest_first, rows.data)
            maps[scope.map_column] = OwnedMap.of(array, position, attached.owner)
    kinds = {scope.prefix + key: kind for scope, plan in plans.items() for key, kind in plan.named_kinds()}
    filled = [field for field in spec.schema if field.name in columns or not field.nullable]
    fields = [*filled, *(pa.field(name, COLUMN_TYPES[kind][1]) for name, kind in kinds.items())]
    few = _few(rows, columns, own, order[:: -(-len(order) // SAMPLE_ROWS)].copy())
    coded = {*maps, *(scope.map_column for scope in own if rows.attached[scope.map_column].owner is not None)}
    schema = pa.schema(_in_file(field, few, coded) for field in fields)
    stored = (
        *(SegmentColumn(field.name, "") for field in filled),
        *(SegmentColumn(name, COLUMN_TYPES[kind][0]) for name, kind in kinds.items()),
    )
    return Layout(rows, schema, few, tuple(stored), columns, maps, plans, frozenset(own))


def _in_file(field: pa.Field, few: Collection[str], coded: Collection[str]) -> pa.Field:
    """The field as it is handed to Parquet's writer."""
    if field.name in coded:
        return field.with_type(CODED_MAP)
    is_few = field.name in few and _textual(field.type)
    return field.with_type(pa.dictionary(pa.int32(), field.type)) if is_few else field


def _is_empty(column: Column, order: Any) -> bool:
    """Whether this column is null in all of these rows."""
    match column:
        case Numbers(_, valid, owner):
            return valid is not None and not _of_rows(valid, owner, order).any()
        case Coded(codes, _, owner):
            return bool((_of_rows(codes, owner, order) < 0).all())
        case Texts(_, _, size, empty_is_null):
            return empty_is_null and not size[order].any()
        case Json(values):
            return bool((values["kind"][order] == ABSENT).all())
        case Structs(_, _, valid):
            return valid is not None and not valid[order].any()
        case Lists(first, _, empty_is_null):
            return empty_is_null and not (first[order + 1] > first[order]).any()


def _of_rows(values: Any, owner: Any, order: Any) -> Any:
    return values[order if owner is None else owner[order]]


def _plan(attached: Attached, data: Any, order: Any, least_rows: int) -> tuple[Plan, Any]:
    """(plan, the owners of these rows), the owners None where attributes are to be placed run by run."""
    if attached.owner is None:
        once = np.ones(len(order), np.int64)
        return plan_columns(attached, data, order, once, least_rows), None
    rows_of = np.bincount(attached.owner[order], minlength=len(attached.first) - 1)
    owners = np.flatnonzero(rows_of).astype(np.int32)
    plan = plan_columns(attached, data, owners, rows_of[owners], least_rows)
    return plan, None if len(owners) > MAX_OWNERS else owners


def batch_of(layout: Layout, order: Any) -> pa.RecordBatch:
    """These rows of the segment, in this order."""
    rows = layout.rows
    arrays: dict[str, pa.Array] = {}
    for scope in layout.plans:
        if scope in layout.by_run:
            arrays |= _run_arrays(layout, scope, order)
        elif scope.map_column not in layout.maps:
            arrays[scope.map_column] = _empty_maps(len(order))
    arrays |= {name: owned.take(order) for name, owned in layout.maps.items()}
    for field in layout.schema:
        if field.name in layout.columns and field.name not in layout.maps:
            arrays[field.name] = take(layout.columns[field.name], rows.data, order, field.type)
    return pa.RecordBatch.from_arrays([arrays[name] for name in layout.schema.names], schema=layout.schema)


def _run_arrays(layout: Layout, scope: Scope, order: Any) -> dict[str, pa.Array]:
    """This scope's attributes of these rows: those of an owner of several of them are placed once."""
    attached, plan, data = layout.rows.attached[scope.map_column], layout.plans[scope], layout.rows.data
    named = [(scope.prefix + key, layout.schema.field(scope.prefix + key).type) for key in plan.keys]
    if attached.owner is None:
        placed = place(attached, plan, order)
        maps = map_array(attached, placed.rest, placed.rest_first, data)
        columns = [slices_array(one, data, kind) for one, (_, kind) in zip(placed.columns, named, strict=True)]
    else:
        owners, owner = np.unique(attached.owner[order], return_inverse=True)
        placed = place(attached, plan, owners)
        everyone = np.arange(len(order))
        maps = OwnedMap.of(map_array(attached, placed.rest, placed.rest_first, data), owner).take(everyone)
        owned = owned_columns(placed, data, slice(None), len(owners), owner)
        columns = [take(one, data, everyone, kind) for one, (_, kind) in zip(owned, named, strict=True)]
    return {scope.map_column: maps} | {name: column for (name, _), column in zip(named, columns, strict=True)}


def _empty_maps(count: int) -> pa.Array:
    nothing = pa.array([], pa.string())
    return pa.MapArray.from_arrays(pa.array(np.zeros(count + 1, np.int32)), nothing, nothing).cast(OVERFLOW)


def _textual(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _few(rows: Rows, columns: Mapping[str, Column], own: Mapping[Scope, Plan], sample: Any) -> frozenset[str]:
    """The columns with few different values among the rows of the sample; `own` plans what is placed by run. What rows
    share is always in codes, because repeating one large text for each of its rows could take any amount of memory."""
    shares = {name: _share(column, rows.data, sample) for name, column in columns.items()}
    for scope, plan in own.items():
        attached = rows.attached[scope.map_column]
        if attached.owner is not None:
            shares |= {scope.prefix + key: 0.0 for key in plan.keys}
            continue
        placed = place(attached, plan, sample)
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
