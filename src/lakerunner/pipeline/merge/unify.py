"""Unify the columns of the inputs of a merge, and move attributes between columns and map accordingly.

Comes in: open segments, then batches of their rows. Goes out: the schema of the merged segment with the kind of each
shredded attribute, and the attributes of each batch in these columns and its map. The merged segment has the columns
that any input has. If a key is a column of different kinds in different segments, it gets the kind that most of its
values have, by the footers; values of other kinds go to the map. docs/formats/attributes.md states which keys may be
columns, except for rarity: what is a column in one input stays one.

What always holds: an attribute is either in a column or in the map, and of several values of a key the first one is in
the column if it has the column's kind. So equal rows are equal however their segments were shredded.

Values move if their key has a column in one segment and is rare, or of another kind, in another. Each distinct value is
written or parsed as typed JSON once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.segment import Column
from lakerunner.model.signal import SCOPES, Scope, SignalSpec
from lakerunner.model.typed_json import decode_value, encode_value
from lakerunner.pipeline.merge.inputs import SegmentFile, damage_reported
from lakerunner.pipeline.read.walk import ARRAY, BOOL, BYTES, DOUBLE, INT, KVLIST, STRING
from lakerunner.pipeline.steps.arrow_columns import is_textual, plain
from lakerunner.pipeline.steps.attribute_values import kind_of
from lakerunner.pipeline.steps.shred import COLUMN_TYPES, MAX_COLUMNS

_KINDS = {"string": STRING, "bool": BOOL, "int64": INT, "double": DOUBLE, "bytes": BYTES}
_LOOK_ROWS = 4096


@dataclass(frozen=True)
class UnifiedColumns:
    """The columns of the merged segment. `kinds` are those of its shredded attributes, by the column's name; `given`
    the same for each input; `keys` and `given_keys` are these by scope and key."""

    schema: pa.Schema
    columns: tuple[Column, ...]
    kinds: Mapping[str, int]
    given: tuple[Mapping[str, int], ...]

    @cached_property
    def keys(self) -> dict[Scope, dict[str, int]]:
        return _split_by_scope(self.kinds)

    @cached_property
    def given_keys(self) -> list[dict[Scope, dict[str, int]]]:
        return [_split_by_scope(kinds) for kinds in self.given]


def _split_by_scope(kinds: Mapping[str, int]) -> dict[Scope, dict[str, int]]:
    return {
        scope: {name.removeprefix(scope.prefix): kind for name, kind in kinds.items() if name.startswith(scope.prefix)}
        for scope in SCOPES
    }


def unify(spec: SignalSpec, inputs: Sequence[SegmentFile], derived: Collection[str] = ()) -> UnifiedColumns:
    """Return the columns of the segment that these inputs merge into; `derived` are made for inputs that lack them."""
    given = tuple(_attribute_kinds(opened) for opened in inputs)
    kinds: dict[str, int] = {}
    for scope in SCOPES:
        kinds |= _choose_columns(scope, inputs, given)
    there = {name for opened in inputs for name in opened.schema.names} | {*derived}
    fields = [field for field in spec.schema if field.name in there or not field.nullable]
    named = sorted(kinds)
    schema = pa.schema(
        [
            *(_as_dictionary(field, inputs, derived) for field in fields),
            *(_as_dictionary(pa.field(name, COLUMN_TYPES[kinds[name]][1]), inputs) for name in named),
        ]
    )
    columns = (
        *(Column(field.name, "") for field in fields),
        *(Column(name, COLUMN_TYPES[kinds[name]][0]) for name in named),
    )
    return UnifiedColumns(schema, columns, kinds, given)


def _attribute_kinds(opened: SegmentFile) -> dict[str, int]:
    return {
        column.name: _KINDS[column.type] if column.type in _KINDS else _json_kind(opened, column.name)
        for column in opened.segment.columns
        if column.type
    }


def _json_kind(opened: SegmentFile, name: str) -> int:
    """Return whether a JSON column holds arrays or kvlists: it never holds both."""
    with damage_reported(opened.segment):
        for batch in opened.batches(_LOOK_ROWS, [name]):
            for text in batch.column(0).drop_null().slice(0, 1).to_pylist():
                return ARRAY if text.startswith("[") else KVLIST
    return ARRAY


def _choose_columns(scope: Scope, inputs: Sequence[SegmentFile], given: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Return the columns of this scope, each with its kind."""
    values: dict[str, Counter[int]] = {}
    for opened, kinds in zip(inputs, given, strict=True):
        for name, kind in kinds.items():
            if name.startswith(scope.prefix):
                values.setdefault(name, Counter())[kind] += opened.filled(name)
    chosen: dict[str, tuple[str, int]] = {}
    for name in sorted(values, key=lambda name: (-values[name].total(), name.encode())):
        if len(chosen) == MAX_COLUMNS:
            break
        kind = min(values[name], key=lambda kind: (-values[name][kind], kind))
        chosen.setdefault(name.casefold(), (name, kind))
    return dict(chosen.values())


def _as_dictionary(field: pa.Field, inputs: Iterable[SegmentFile], derived: Collection[str] = ()) -> pa.Field:
    """Return the field as a dictionary if most rows are read as one, else unchanged."""
    rows: Counter[bool] = Counter()
    for opened in inputs:
        if field.name in opened.schema.names:
            rows[field.name in opened.coded] += opened.segment.rows
        elif field.name in derived:  # they are made as dictionaries
            rows[True] += opened.segment.rows
    if is_textual(field.type) and rows[True] > rows[False]:
        return field.with_type(pa.dictionary(pa.int32(), field.type))
    return field


_TEXTS_OF_JSON = (ARRAY, KVLIST)
# Texts that need no escapes in JSON, without and with quotes around them.
_UNQUOTED, _QUOTED = (rf'^{quote}[^"\\\x00-\x1f]*{quote}$' for quote in ("", '"'))


def move_attributes(
    maps: pa.Array, given: Mapping[str, pa.Array], given_kinds: Mapping[str, int], kinds: Mapping[str, int]
) -> tuple[pa.Array, dict[str, pa.Array]]:
    """Return (map, columns). `given` are the input's columns and `kinds` those of the merged segment, both by key.
    Columns without a value in these rows are left out."""
    columns = {key: array for key, array in given.items() if kinds.get(key) == given_kinds[key]}
    leave = {key: array for key, array in given.items() if key not in columns and array.null_count < len(array)}
    entries = _map_entries(maps)
    is_left = np.ones(len(entries.rows), np.bool_)
    for key, found in _first_entries(entries, kinds).items():
        # A value that was in a column is the first of its key, of whatever kind it is.
        is_free = _null_mask(columns[key] if key in columns else leave.get(key))
        values = _decode_values(entries.items.take(pa.array(found)), kinds[key])
        fits = values.is_valid().to_numpy(zero_copy_only=False)
        if is_free is not None:
            fits &= is_free[entries.rows[found]]
        if fits.any():
            before = plain(columns[key]) if key in columns else pa.nulls(len(maps), COLUMN_TYPES[kinds[key]][1])
            columns[key] = _patch_rows(before, entries.rows[found[fits]], values.filter(pa.array(fits)))
            is_left[found[fits]] = False
    if not leave and is_left.all():
        return maps, columns
    left = [_column_entries(key, leave[key], given_kinds[key]) for key in sorted(leave)]
    return _build_maps([*left, entries.chosen(is_left)], len(maps)), columns


class _Entries(NamedTuple):
    """Entries of maps: the row, the key and the typed JSON of each."""

    rows: Any
    keys: pa.Array
    items: pa.Array

    def chosen(self, mask: Any) -> _Entries:
        return _Entries(self.rows[mask], self.keys.filter(pa.array(mask)), self.items.filter(pa.array(mask)))


def _map_entries(maps: pa.Array) -> _Entries:
    offsets = maps.offsets.to_numpy()
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    rows = np.repeat(np.arange(len(maps)), np.diff(offsets)) if count else np.zeros(0, np.int64)
    return _Entries(rows, maps.keys.slice(first, count), maps.items.slice(first, count))


def _first_entries(entries: _Entries, kinds: Mapping[str, int]) -> dict[str, Any]:
    """Return, for each key that is a column of the merged segment, the entries that are the first of it in their
    row."""
    if not len(entries.rows) or not kinds:
        return {}
    columns = sorted(kinds)
    place = pc.index_in(entries.keys, pa.array(columns, pa.string())).fill_null(-1).to_numpy(zero_copy_only=False)
    found = np.flatnonzero(place >= 0)
    _, first = np.unique(entries.rows[found] * len(columns) + place[found], return_index=True)
    found = found[first]
    return {columns[number]: found[place[found] == number] for number in np.unique(place[found]).tolist()}


def _column_entries(key: str, array: pa.Array, kind: int) -> _Entries:
    """Return the values of this column as entries of the map."""
    rows = np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False))
    keys = pa.repeat(pa.scalar(key, pa.string()), len(rows))
    return _Entries(rows, keys, _encode_values(plain(array).drop_null(), kind))


def _build_maps(parts: list[_Entries], rows: int) -> pa.Array:
    """Build the maps of `rows` rows, with the entries of these parts in their order in each row."""
    row = np.concatenate([part.rows for part in parts])
    order = pa.array(np.argsort(row, kind="stable"))
    offsets = np.append(0, np.cumsum(np.bincount(row, minlength=rows)))
    keys, items = (pa.concat_arrays(arrays).take(order) for arrays in zip(*(part[1:] for part in parts), strict=True))
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items)


def _encode_values(values: pa.Array, kind: int) -> pa.Array:
    """Return the typed JSON of each value."""
    if kind in _TEXTS_OF_JSON:
        return values
    if kind == INT:
        return values.cast(pa.string())
    # Encode doubles by their bits, because 0.0 equals -0.0.
    coded = (values.view(pa.int64()) if kind == DOUBLE else values).dictionary_encode()
    different = coded.dictionary.view(pa.float64()) if kind == DOUBLE else coded.dictionary
    texts = pc.binary_join_element_wise('"', different, '"', "") if kind == STRING else None
    return _convert(texts, _UNQUOTED, different, encode_value, pa.string()).take(coded.indices)


def _decode_values(texts: pa.Array, kind: int) -> pa.Array:
    """Return the values of this kind that the typed JSON texts encode; null for another kind."""
    coded = texts.dictionary_encode()
    values = pc.utf8_slice_codeunits(coded.dictionary, 1, -1) if kind == STRING else None
    column_type = COLUMN_TYPES[kind][1]
    return _convert(values, _QUOTED, coded.dictionary, partial(_decode_kind, kind), column_type).take(coded.indices)


def _convert(
    quick: pa.Array | None, pattern: str, given: pa.Array, convert: Callable[[Any], Any], column_type: pa.DataType
) -> pa.Array:
    """Convert the values: take `quick` where they match the pattern, and convert all others one by one."""
    if quick is None:
        return pa.array([convert(value) for value in given.to_pylist()], column_type)
    is_odd = pc.invert(pc.match_substring_regex(given, pattern))
    odd = [convert(value) for value in given.filter(is_odd).to_pylist()]
    return pc.replace_with_mask(quick, is_odd, pa.array(odd, column_type))


def _decode_kind(kind: int, text: str) -> Any:
    if kind_of(text) != kind:
        return None
    return text if kind in _TEXTS_OF_JSON else decode_value(text)


def _null_mask(array: pa.Array | None) -> Any:
    return None if array is None else array.is_null().to_numpy(zero_copy_only=False)


def _patch_rows(array: pa.Array, rows: Any, fresh: pa.Array) -> pa.Array:
    """Return the array with other values in these rows."""
    place = np.arange(len(array))
    place[rows] = len(array) + np.arange(len(rows))
    return pa.concat_arrays([array, fresh]).take(pa.array(place))
