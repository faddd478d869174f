"""The labels of a batch of log records or spans.

Comes in: rows of LakeQL's tables as Arrow, with ids as text and attributes in maps. Goes out: the values of a label, or
for each row the number of its label set. What always holds: a row's labels are what the view's SQL gives for them
(row_view.py). Each distinct value and key is looked at once: the rest is arithmetic on their numbers.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.labels import Labels
from lakerunner.model.labels.row_view import MAP_COLUMNS, AttributeLabel, NumberLabel, RowLabel, RowView
from lakerunner.model.signal import Attribute

Ints = npt.NDArray[np.int64]


class RowLabels:
    """The labels of one batch."""

    def __init__(self, view: RowView, batch: pa.RecordBatch) -> None:
        self._view = view
        self._batch = batch

    @property
    def keys(self) -> set[Attribute]:
        """The attributes that occur, also those without a value."""
        return set(self._entries.keys)

    def values(self, label: RowLabel) -> pa.DictionaryArray:
        """Return the label's value in each row, null where the row lacks it."""
        if isinstance(label, AttributeLabel):
            return self._entries.values(label.attributes)
        column = self._batch.column(label.column)
        if not isinstance(label, NumberLabel):
            return column.dictionary_encode()
        numbers = column if label.divisor == 1 else pc.divide(column, pa.scalar(label.divisor, column.type))
        encoded = numbers.dictionary_encode()
        texts = pa.array([label.text(number) for number in encoded.dictionary.to_pylist()], pa.string())
        return pa.DictionaryArray.from_arrays(encoded.indices, texts)

    def sets(self, names: Collection[str] | None = None) -> tuple[Ints, list[Labels]]:
        """Return the number of each row's label set, and the sets in the order in which they first occur: of the labels
        with these names, or of all. Aliases are not among them: what they mean, only all rows of a query can say."""
        labels = self._view.labels(self.keys)
        chosen = sorted(labels if names is None else labels.keys() & names)
        columns = [(name, *_codes(self.values(labels[name]))) for name in chosen]
        numbers, first = _renumbered(np.zeros(self._batch.num_rows, np.int64))
        for _, texts, codes in columns:
            numbers, first = _renumbered(numbers * (len(texts) + 1) + codes + 1)
        found: list[list[tuple[str, str]]] = [[] for _ in first]
        for name, texts, codes in columns:
            for pairs, code in zip(found, codes[first].tolist(), strict=True):
                if code >= 0:
                    pairs.append((name, texts[code]))
        return numbers, [tuple(pairs) for pairs in found]

    @cached_property
    def _entries(self) -> _Entries:
        return _Entries(self._batch)


class _Entries:
    """The entries of all three maps that have a value, ordered by their attribute: `rows` has each one's row, `codes`
    the number of its value in `texts`. Those of `keys[n]` stand from `bounds[n]` up to `bounds[n + 1]`."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.keys: list[Attribute] = []
        rows, keys, values = [], [], []
        for scope, name in MAP_COLUMNS.items():
            maps = batch.column(name)
            offsets = maps.offsets.to_numpy()
            here = slice(offsets[0], offsets[-1])  # `keys` and `items` of a slice are those of the whole array
            of_scope = maps.keys[here].dictionary_encode()
            rows.append(np.repeat(np.arange(len(maps)), np.diff(offsets)))
            keys.append(of_scope.indices.to_numpy() + len(self.keys))
            values.append(maps.items[here])
            self.keys += [Attribute(scope, key) for key in of_scope.dictionary.to_pylist()]
        encoded = pa.concat_arrays(values).dictionary_encode()
        self._texts = encoded.dictionary
        codes, key_of = _numbers(encoded.indices), np.concatenate(keys)
        order = np.argsort(key_of, kind="stable")
        order = order[codes[order] >= 0]
        self._rows, self._codes = np.concatenate(rows)[order], codes[order]
        self._bounds = np.searchsorted(key_of[order], np.arange(len(self.keys) + 1))
        self._number = {key: n for n, key in enumerate(self.keys)}
        self._row_count = batch.num_rows

    def values(self, attributes: Collection[Attribute]) -> pa.DictionaryArray:
        """Return the value of the first of the attributes which a row has."""
        found: Ints = np.full(self._row_count, -1, np.int64)
        for attribute in reversed(tuple(attributes)):  # the first is written last
            n = self._number.get(attribute)
            if n is not None:
                here = slice(self._bounds[n], self._bounds[n + 1])
                found[self._rows[here]] = self._codes[here]
        encoded = pa.array(found, mask=found < 0).dictionary_encode()
        return pa.DictionaryArray.from_arrays(encoded.indices, self._texts.take(encoded.dictionary))


def _codes(values: pa.DictionaryArray) -> tuple[list[str], Ints]:
    """Return the texts and the number of each row's, -1 where it has none: an empty label is an absent one."""
    texts: list[Any] = values.dictionary.to_pylist()
    codes = _numbers(values.indices)
    if "" in texts:
        codes = np.where(codes == texts.index(""), -1, codes)
    return texts, codes


def _renumbered(numbers: Ints) -> tuple[Ints, Ints]:
    """Return numbers without gaps, in the order in which they first occur, and where each of them does."""
    codes = _numbers(pa.array(numbers).dictionary_encode().indices)
    first: Ints = np.zeros(codes.max(initial=-1) + 1, np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]  # the first is written last
    return codes, first


def _numbers(indices: pa.Array) -> Ints:
    numbers: Ints = indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    return numbers
