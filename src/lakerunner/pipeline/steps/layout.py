"""The columns of one segment: chosen once for the whole segment, then built for one run of rows after the other.

Comes in: Rows and the row numbers of the segment in their order. Goes out: its Arrow schema and, for any run of these
rows, a record batch. The columns are those of the signal, except nullable ones that no row fills, then the shredded
attributes sorted by name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lakerunner.model.segment import Column as SegmentColumn
from lakerunner.model.signal import ATTRIBUTES, OVERFLOW, SCOPES, Scope, SignalSpec
from lakerunner.pipeline.read.rows import (
    Attached,
    CodedColumn,
    Column,
    JsonColumn,
    ListColumn,
    NumberColumn,
    Rows,
    StructColumn,
    TextColumn,
)
from lakerunner.pipeline.read.walk import ABSENT
from lakerunner.pipeline.steps.arrow_columns import CODED_TEXT, is_textual
from lakerunner.pipeline.steps.shred import COLUMN_TYPES, ShredPlan, owned_columns, plan_columns, shred_values
from lakerunner.pipeline.steps.take import (
    Slices,
    coded_array,
    count_distinct,
    flattened,
    map_array,
    slices_array,
    take,
    text_slices,
    validity_buffer,
)

# An attribute of the rows themselves stays in the map if fewer than one row in this many has it.
RARE = 200
# A column is dictionary-encoded unless more than this share of a sample of its values is distinct.
MOST_DISTINCT = 0.7
SAMPLE_ROWS = 2048
# If more resources or scopes than this have rows in a segment, theirs are placed like attributes of the rows.
MAX_OWNERS = 10_000
# Shared maps are built of codes: a row repeats the codes of its owner's keys and texts, never the texts.
CODED_MAP = pa.map_(CODED_TEXT, CODED_TEXT)
_ENTRY_BYTES = 16  # of memory that an entry takes in each row that has it
_FREE_ENTRIES = 64  # of a row whose map is made for its run only


@dataclass(frozen=True)
class OwnedMap:
    """Maps that rows share. The map of row r is number `place[owner[r]]`, or `place[r]` if `owner` is None; -1 is null.
    Map i has the entries first[i] to first[i + 1] of `keys` and `texts`."""

    first: Any
    keys: CodedColumn
    texts: CodedColumn
    place: Any
    owner: Any = None

    @classmethod
    def of(cls, maps: pa.Array, place: Any, owner: Any = None) -> OwnedMap:
        # A further empty map at the end represents null.
        first = np.append(maps.offsets.to_numpy(), len(maps.keys)).astype(np.int32)
        return cls(first, _encode_texts(maps.keys), _encode_texts(maps.items), place, owner)

    def take(self, order: Any) -> pa.Array:
        """Return the maps of these rows, as CODED_MAP."""
        place = self._places(order)
        entries, offsets = flattened(self.first, place)
        pairs = [coded_array(column.codes[entries], column.values) for column in (self.keys, self.texts)]
        struct = pa.StructArray.from_arrays(pairs, fields=[CODED_MAP.key_field, CODED_MAP.item_field])
        buffers = [validity_buffer(place < len(self.first) - 2), pa.py_buffer(offsets)]
        return pa.Array.from_buffers(CODED_MAP, len(order), buffers, children=[struct])

    def sizes(self, order: Any) -> Any:
        """Return the bytes of memory that the maps of these rows take beside their texts."""
        place = self._places(order)
        return _ENTRY_BYTES * (self.first[place + 1] - self.first[place]).astype(np.int64)

    def _places(self, order: Any) -> Any:
        place = self.place[order if self.owner is None else self.owner[order]]
        return np.where(place < 0, len(self.first) - 2, place).astype(np.int64)


def _encode_texts(texts: pa.Array) -> CodedColumn:
    encoded = texts.dictionary_encode()
    return CodedColumn(encoded.indices.to_numpy(), encoded.dictionary)


@dataclass(frozen=True)
class Layout:
    """The layout of a segment. `columns` and `maps` are ready for any run: what a row has from itself, its resource or
    its scope. The attributes of the scopes in `by_run` are placed run by run. `few` are the columns with few distinct
    values; `stored` are the columns as the index lists them."""

    rows: Rows
    schema: pa.Schema
    few: frozenset[str]
    stored: tuple[SegmentColumn, ...]
    columns: Mapping[str, Column]
    maps: Mapping[str, OwnedMap]
    plans: Mapping[Scope, ShredPlan]
    by_run: frozenset[Scope]

    def sizes(self, order: Any) -> Any:
        """Return the bytes of input of these rows, plus what the maps that they share with others take in each of
        them."""
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
        """Return the most distinct values that one of these row groups has in each of these text columns, for those
        that the segment has."""
        found: dict[str, int] = {}
        for name in names:
            if name in self.schema.names:
                column = self.rows.column(name, TextColumn)
                found[name] = max(count_distinct(text_slices(column, one), self.rows.data)[0] for one in groups)
        return found


def lay_out(rows: Rows, order: Any, spec: SignalSpec) -> Layout:
    """Return the layout of the segment of these rows."""
    columns: dict[str, Column] = {
        field.name: rows.columns[field.name]
        for field in spec.schema
        if field.name in rows.columns and not (field.nullable and _is_empty(rows.columns[field.name], order))
    }
    maps = {
        name: OwnedMap.of(column.values, column.codes, column.owner)
        for name, column in columns.items()
        if isinstance(column, CodedColumn) and pa.types.is_map(column.values.type)
    }
    plans: dict[Scope, ShredPlan] = {}
    own: dict[Scope, ShredPlan] = {}
    for scope in SCOPES:
        attached = rows.attached[scope.map_column]
        plans[scope], owners = _plan_scope(
            attached, rows.data, order, -(-len(order) // RARE) if scope is ATTRIBUTES else 1
        )
        if owners is None:
            own[scope] = plans[scope]
            continue
        placed = shred_values(attached, plans[scope], owners)
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
    few = _low_cardinality_columns(rows, columns, own, order[:: -(-len(order) // SAMPLE_ROWS)].copy())
    coded = {*maps, *(scope.map_column for scope in own if rows.attached[scope.map_column].owner is not None)}
    schema = pa.schema(_file_field(field, few, coded) for field in fields)
    stored = (
        *(SegmentColumn(field.name, "") for field in filled),
        *(SegmentColumn(name, COLUMN_TYPES[kind][0]) for name, kind in kinds.items()),
    )
    return Layout(rows, schema, few, tuple(stored), columns, maps, plans, frozenset(own))


def _file_field(field: pa.Field, few: Collection[str], coded: Collection[str]) -> pa.Field:
    """Return the field as it is passed to Parquet's writer."""
    if field.name in coded:
        return field.with_type(CODED_MAP)
    is_few = field.name in few and is_textual(field.type)
    return field.with_type(pa.dictionary(pa.int32(), field.type)) if is_few else field


def _is_empty(column: Column, order: Any) -> bool:
    """Return whether this column is null in all of these rows."""
    match column:
        case NumberColumn(_, valid, owner):
            return valid is not None and not _values_of_rows(valid, owner, order).any()
        case CodedColumn(codes, _, owner):
            return bool((_values_of_rows(codes, owner, order) < 0).all())
        case TextColumn(_, _, size, empty_is_null):
            return empty_is_null and not size[order].any()
        case JsonColumn(values):
            return bool((values["kind"][order] == ABSENT).all())
        case StructColumn(_, _, valid):
            return valid is not None and not valid[order].any()
        case ListColumn(first, _, empty_is_null):
            return empty_is_null and not (first[order + 1] > first[order]).any()


def _values_of_rows(values: Any, owner: Any, order: Any) -> Any:
    return values[order if owner is None else owner[order]]


def _plan_scope(attached: Attached, data: Any, order: Any, least_rows: int) -> tuple[ShredPlan, Any]:
    """Return (plan, the owners of these rows); the owners are None if attributes are to be placed run by run."""
    if attached.owner is None:
        once = np.ones(len(order), np.int64)
        return plan_columns(attached, data, order, once, least_rows), None
    rows_of = np.bincount(attached.owner[order], minlength=len(attached.first) - 1)
    owners = np.flatnonzero(rows_of).astype(np.int32)
    plan = plan_columns(attached, data, owners, rows_of[owners], least_rows)
    return plan, None if len(owners) > MAX_OWNERS else owners


def build_batch(layout: Layout, order: Any) -> pa.RecordBatch:
    """Return these rows of the segment, in this order."""
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
    """Return this scope's attributes of these rows: those of an owner of several rows are placed once."""
    attached, plan, data = layout.rows.attached[scope.map_column], layout.plans[scope], layout.rows.data
    named = [(scope.prefix + key, layout.schema.field(scope.prefix + key).type) for key in plan.keys]
    if attached.owner is None:
        placed = shred_values(attached, plan, order)
        maps = map_array(attached, placed.rest, placed.rest_first, data)
        columns = [slices_array(one, data, kind) for one, (_, kind) in zip(placed.columns, named, strict=True)]
    else:
        owners, owner = np.unique(attached.owner[order], return_inverse=True)
        placed = shred_values(attached, plan, owners)
        everyone = np.arange(len(order))
        maps = OwnedMap.of(map_array(attached, placed.rest, placed.rest_first, data), owner).take(everyone)
        owned = owned_columns(placed, data, slice(None), len(owners), owner)
        columns = [take(one, data, everyone, kind) for one, (_, kind) in zip(owned, named, strict=True)]
    return {scope.map_column: maps} | {name: column for (name, _), column in zip(named, columns, strict=True)}


def _empty_maps(count: int) -> pa.Array:
    nothing = pa.array([], pa.string())
    return pa.MapArray.from_arrays(pa.array(np.zeros(count + 1, np.int32)), nothing, nothing).cast(OVERFLOW)


def _low_cardinality_columns(
    rows: Rows, columns: Mapping[str, Column], own: Mapping[Scope, ShredPlan], sample: Any
) -> frozenset[str]:
    """Return the columns with few distinct values in the sample; `own` plans what is placed by run. Values that rows
    share are always codes, because repeating one large text for each of its rows could take any amount of memory."""
    shares = {name: _distinct_share(column, rows.data, sample) for name, column in columns.items()}
    for scope, plan in own.items():
        attached = rows.attached[scope.map_column]
        if attached.owner is not None:
            shares |= {scope.prefix + key: 0.0 for key in plan.keys}
            continue
        placed = shred_values(attached, plan, sample)
        for key, slices in zip(plan.keys, placed.columns, strict=True):
            shares[scope.prefix + key] = _distinct_share_of_slices(slices, rows.data)
    return frozenset(name for name, share in shares.items() if share <= MOST_DISTINCT)


def _distinct_share(column: Column, data: Any, sample: Any) -> float:
    match column:
        case CodedColumn():
            return 0.0
        case TextColumn():
            return _distinct_share_of_slices(text_slices(column, sample), data)
        case NumberColumn(values, _, owner):
            return len(np.unique(values[sample if owner is None else owner[sample]])) / len(sample)
        case _:
            return 1.0


def _distinct_share_of_slices(slices: Slices, data: Any) -> float:
    distinct, values = count_distinct(slices, data)
    return distinct / values if values else 0.0
