"""Facts about the series of a segment that ingest makes, from the rows as they were read.

Comes in: the segment's rows and their order. Goes out: the Prometheus names of the series' metrics, computed once for
each distinct metric, and the labels and resource of each series, computed once for each distinct set of attributes
(pipeline/segment/series_files.py writes the file).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.prometheus import (
    INSTANCE,
    JOB,
    METADATA_ENTRY,
    SERVICE_INSTANCE,
    SERVICE_NAME,
    SERVICE_NAMESPACE,
    escaped_label_name,
    escaped_metric_name,
    escaped_own_name,
    metric_name,
)
from lakerunner.model.signal import ATTRIBUTES, RESOURCE
from lakerunner.pipeline.read.memory import PADDING
from lakerunner.pipeline.read.names import texts_of
from lakerunner.pipeline.read.rows import Attached, CodedColumn, NumberColumn, Rows
from lakerunner.pipeline.read.walk import STRING
from lakerunner.pipeline.steps.arrow_columns import CODED_TEXT
from lakerunner.pipeline.steps.record_columns import plain_texts
from lakerunner.pipeline.steps.take import Slices, coded_texts, flattened, slices_array

# As series_files.LABELS, in codes: texts that many series share are not repeated for each of them.
_CODED_LABELS = pa.list_(pa.struct([("name", CODED_TEXT), ("escaped", CODED_TEXT), ("value", CODED_TEXT)]))


@dataclass(frozen=True)
class RowSeries:
    """Facts from rows; `order` has the numbers of the segment's rows in their order."""

    rows: Rows
    order: Any

    def of(self, series: pa.Table) -> pa.Table:
        rows, chosen = self.rows, self.order[series.column("first_row").to_numpy()]
        name, escaped = _prometheus_names(rows, chosen)
        own, resource = (
            _AttributeTexts(rows.attached[scope.map_column], rows.data, chosen) for scope in (ATTRIBUTES, RESOURCE)
        )
        return pa.table(
            {
                "prometheus_name": name,
                "prometheus_escaped": escaped,
                "labels": own.lists(escaped_own_name) if rows.prometheus else _labels(own, resource),
                "as_sent": pa.array(np.full(len(chosen), rows.prometheus)),
                "resource": resource.lists(),
            }
        )


def _prometheus_names(rows: Rows, chosen: Any) -> tuple[pa.Array, pa.Array]:
    """Return the names of these rows' metrics in UTF-8 form and in escaped form; null if there is no escaped one, and
    both for rows that are not metrics."""
    if rows.prometheus:
        return _sent_names(rows, chosen)
    columns = [rows.column(name, CodedColumn) for name in ("metric_name", "unit", "metric_type")]
    codes = [_codes(column, chosen) for column in columns]
    codes.append(_is_monotonic(rows, chosen))
    combined = np.zeros(len(chosen), np.int64)
    for code in codes:
        combined = combined * (int(code.max(initial=0)) + 1) + code
    _, example, place = np.unique(combined, return_index=True, return_inverse=True)
    metrics = [
        (*(column.values[int(code[row])].as_py() for column, code in zip(columns, codes, strict=False)), codes[-1][row])
        for row in example.tolist()
    ]
    names = [metric_name(*metric[:3], monotonic=bool(metric[3])) for metric in metrics]
    escaped = [escaped_metric_name(*metric[:3], monotonic=bool(metric[3])) for metric in metrics]
    return coded_texts(place, pa.array(names, pa.string())), coded_texts(place, pa.array(escaped, pa.string()))


def _sent_names(rows: Rows, chosen: Any) -> tuple[pa.Array, pa.Array]:
    """Return the names as Prometheus sent them."""
    names, types = (rows.column(name, CodedColumn) for name in ("metric_name", "metric_type"))
    is_entry = pc.equal(types.values, METADATA_ENTRY).to_numpy(zero_copy_only=False)
    codes = np.where(is_entry[_codes(types, chosen)], -1, _codes(names, chosen))
    escaped = pa.array([escaped_own_name(name) for name in names.values.to_pylist()], pa.string())
    return coded_texts(codes, names.values), coded_texts(codes, escaped)


def _codes(column: CodedColumn, chosen: Any) -> Any:
    return column.codes[chosen if column.owner is None else column.owner[chosen]]


def _is_monotonic(rows: Rows, chosen: Any) -> Any:
    if "monotonic" not in rows.columns:
        return np.zeros(len(chosen), np.int64)
    column = rows.column("monotonic", NumberColumn)
    said = column.values if column.valid is None else column.values & column.valid
    return said[chosen if column.owner is None else column.owner[chosen]].astype(np.int64)


class _AttributeTexts:
    """The attributes of one scope of some rows, each owner's once, as plain texts sorted by key. Row r has those of
    owner `place[r]`. Attributes without text are left out, as Prometheus has no empty labels; equal keys of one owner
    become one, their texts joined by `;`."""

    def __init__(self, attached: Attached, data: Any, chosen: Any) -> None:
        owners, self.place = np.unique(attached.owners_of(chosen), return_inverse=True)
        items, offsets = flattened(attached.first, owners.astype(np.int32))
        values = attached.values[items]
        names = [name.decode() for name in texts_of(attached.keys, data)]
        by_name = sorted(range(len(names)), key=lambda number: names[number].encode())
        rank = np.empty(len(names), np.int64)
        rank[by_name] = np.arange(len(names))
        self.names = [names[number] for number in by_name]
        owner = np.repeat(np.arange(len(owners)), np.diff(offsets))
        key = rank[values["key"]]
        texts = _value_texts(data, values)
        order = np.lexsort((key, owner))
        kept = order[pc.not_equal(texts, "").to_numpy(zero_copy_only=False)[order]]
        self.owners, self.owner, self.key, self.texts = len(owners), owner[kept], key[kept], texts.take(pa.array(kept))
        self._join_equal()

    def _join_equal(self) -> None:
        again = np.append(False, (self.key[1:] == self.key[:-1]) & (self.owner[1:] == self.owner[:-1]))
        if not again.any():
            return
        joined: list[str] = []
        for text, is_again in zip(self.texts.to_pylist(), again.tolist(), strict=True):
            if is_again:
                joined[-1] += f";{text}"
            else:
                joined.append(text)
        self.owner, self.key, self.texts = self.owner[~again], self.key[~again], pa.array(joined, pa.string())

    def value_of(self, name: str) -> pa.Array:
        """Return the text of this key for each owner, null if it has none."""
        if name not in self.names:
            return pa.nulls(self.owners, pa.string())
        found = np.flatnonzero(self.key == self.names.index(name))
        position = np.full(self.owners, -1, np.int64)
        position[self.owner[found]] = found
        return self.texts.take(pa.array(position, mask=position < 0))

    def lists(self, escape: Callable[[str], str] = escaped_label_name) -> pa.Array:
        """Return one list of labels for each row."""
        first = np.searchsorted(self.owner, np.arange(self.owners + 1))
        items, offsets = _repeat_lists(first[:-1], np.diff(first), self.place)
        return _label_lists(offsets, self.names, self.key[items], coded_texts(items, self.texts), escape)


def _value_texts(data: Any, values: Any) -> pa.Array:
    """Return the plain text of each value."""
    is_text = values["kind"] == STRING
    strings, others = np.flatnonzero(is_text), np.flatnonzero(~is_text)
    at, size = (np.ascontiguousarray(values[field][strings]) for field in ("at", "size"))
    found = [slices_array(Slices(STRING, at, size), data, pa.string())]
    if len(others):
        starts, sizes, texts = plain_texts(data, values[others])
        padded = np.concatenate([texts, np.zeros(PADDING, np.uint8)])
        found.append(slices_array(Slices(STRING, starts, sizes), padded, pa.string()))
    position = np.empty(len(values), np.int64)
    position[np.concatenate([strings, others])] = np.arange(len(values))
    return pa.concat_arrays(found).take(pa.array(position))


def _labels(own: _AttributeTexts, resource: _AttributeTexts) -> pa.Array:
    """Return each series' own attributes with job and instance, which come from its resource and win over attributes of
    the same name."""
    names = sorted({*own.names, JOB, INSTANCE}, key=str.encode)
    number_of = {name: number for number, name in enumerate(names)}
    number = np.array([number_of[name] for name in own.names], np.int64)
    sizes = np.bincount(own.owner, minlength=own.owners)
    starts = np.append(0, np.cumsum(sizes))[:-1]
    item, offsets = _repeat_lists(starts, sizes, own.place)
    series = np.repeat(np.arange(len(own.place)), np.diff(offsets))
    name, job = resource.value_of(SERVICE_NAME), resource.value_of(SERVICE_NAMESPACE)
    given = {
        JOB: pc.coalesce(pc.binary_join_element_wise(job, name, "/"), name),
        INSTANCE: resource.value_of(SERVICE_INSTANCE),
    }
    keys, owners, texts, known = [number[own.key[item]]], [series], [item], len(own.texts)
    for label, by_resource in given.items():
        has = np.flatnonzero(by_resource.is_valid().to_numpy(zero_copy_only=False)[resource.place])
        wins = np.zeros(len(own.place), np.bool_)
        wins[has] = True
        clash = (keys[0] == number_of[label]) & wins[owners[0]]
        keys[0], owners[0], texts[0] = keys[0][~clash], owners[0][~clash], texts[0][~clash]
        keys.append(np.full(len(has), number_of[label]))
        owners.append(has)
        texts.append(known + resource.place[has])
        known += len(by_resource)
    key, owner = np.concatenate(keys), np.concatenate(owners)
    order = np.lexsort((key, owner))
    offsets = np.searchsorted(owner[order], np.arange(len(own.place) + 1))
    known_texts = pa.concat_arrays([own.texts, *given.values()])
    texts_in_order = coded_texts(np.concatenate(texts)[order], known_texts)
    return _label_lists(offsets, names, key[order], texts_in_order, escaped_label_name)


def _repeat_lists(starts: Any, sizes: Any, place: Any) -> tuple[Any, Any]:
    """Return (items, offsets) of lists with these starts and sizes, one for each place."""
    offsets = np.append(0, np.cumsum(sizes[place]))
    items = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - starts[place], sizes[place])
    return items, offsets


def _label_lists(offsets: Any, names: list[str], key: Any, texts: pa.Array, escape: Callable[[str], str]) -> pa.Array:
    arrays = [
        coded_texts(key, pa.array(names, pa.string())),
        coded_texts(key, pa.array([escape(name) for name in names], pa.string())),
        texts,
    ]
    labels = pa.StructArray.from_arrays(arrays, fields=list(_CODED_LABELS.value_type))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), labels, type=_CODED_LABELS)
