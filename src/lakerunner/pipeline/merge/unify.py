"""The columns of a merged segment: those that any of its inputs has.

Comes in: segments that are open. Goes out: the schema of the merged one, and of which kind each shredded attribute is.
A key that is a column of different kinds in different segments gets the kind that most of its values have, as the
footers tell; values of the others go to the map (pipeline/merge/attributes.py). Which keys may be columns at all is as
docs/formats/attributes.md has it, but for rarity: what is a column somewhere stays one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from lakerunner.model.segment import Column
from lakerunner.model.signal import SCOPES, Scope, SignalSpec
from lakerunner.pipeline.merge.opened import Opened, explained
from lakerunner.pipeline.read.walk import ARRAY, BOOL, BYTES, DOUBLE, INT, KVLIST, STRING
from lakerunner.pipeline.steps.shred import COLUMN_TYPES, MAX_COLUMNS

_KINDS = {"string": STRING, "bool": BOOL, "int64": INT, "double": DOUBLE, "bytes": BYTES}
_LOOK_ROWS = 4096


@dataclass(frozen=True)
class Unified:
    """`kinds` are those of the shredded attributes that the merged segment has, by the column's name; `given` the same
    of each input; `keys` and `given_keys` are these by scope and key."""

    schema: pa.Schema
    columns: tuple[Column, ...]
    kinds: Mapping[str, int]
    given: tuple[Mapping[str, int], ...]

    @cached_property
    def keys(self) -> dict[Scope, dict[str, int]]:
        return _by_scope(self.kinds)

    @cached_property
    def given_keys(self) -> list[dict[Scope, dict[str, int]]]:
        return [_by_scope(kinds) for kinds in self.given]


def _by_scope(kinds: Mapping[str, int]) -> dict[Scope, dict[str, int]]:
    return {
        scope: {name.removeprefix(scope.prefix): kind for name, kind in kinds.items() if name.startswith(scope.prefix)}
        for scope in SCOPES
    }


def unify(spec: SignalSpec, inputs: Sequence[Opened]) -> Unified:
    """The columns of what these make together."""
    given = tuple(_kinds_of(opened) for opened in inputs)
    kinds: dict[str, int] = {}
    for scope in SCOPES:
        kinds |= _chosen(scope, inputs, given)
    there = {name for opened in inputs for name in opened.schema.names}
    fields = [field for field in spec.schema if field.name in there or not field.nullable]
    named = sorted(kinds)
    schema = pa.schema(
        [
            *(_coded(field, inputs) for field in fields),
            *(_coded(pa.field(name, COLUMN_TYPES[kinds[name]][1]), inputs) for name in named),
        ]
    )
    columns = (
        *(Column(field.name, "") for field in fields),
        *(Column(name, COLUMN_TYPES[kinds[name]][0]) for name in named),
    )
    return Unified(schema, columns, kinds, given)


def _kinds_of(opened: Opened) -> dict[str, int]:
    return {
        column.name: _KINDS[column.type] if column.type in _KINDS else _json_kind(opened, column.name)
        for column in opened.segment.columns
        if column.type
    }


def _json_kind(opened: Opened, name: str) -> int:
    """Arrays or kvlists: a column holds only one of both."""
    with explained(opened.segment):
        for batch in opened.batches(_LOOK_ROWS, [name]):
            for text in batch.column(0).drop_null().slice(0, 1).to_pylist():
                return ARRAY if text.startswith("[") else KVLIST
    return ARRAY


def _chosen(scope: Scope, inputs: Sequence[Opened], given: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """The columns of this scope, each with its kind."""
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


def _coded(field: pa.Field, inputs: Iterable[Opened]) -> pa.Field:
    """The same field, as a dictionary where most rows are read as one."""
    rows: Counter[bool] = Counter()
    for opened in inputs:
        if field.name in opened.schema.names:
            rows[field.name in opened.coded] += opened.segment.rows
    textual = pa.types.is_string(field.type) or pa.types.is_binary(field.type)
    if textual and rows[True] > rows[False]:
        return field.with_type(pa.dictionary(pa.int32(), field.type))
    return field
