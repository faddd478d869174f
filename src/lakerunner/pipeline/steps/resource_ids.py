"""Number the resources of log rows: a digest of the resource's attributes and of its schema URL.

Comes in: a record batch of a segment and the types of its columns. Goes out: one number for each row. What always
holds: equal resources have equal numbers on every worker and in every release, in whatever order their attributes came
and whether these have columns or not; docs/formats/segments.md states how the number is made. It is computed column by
column, of each distinct value once, since the digest of a set of attributes is the sum of those of its pairs.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from lakerunner.kernel_cache import njit
from lakerunner.model.signal import RESOURCE
from lakerunner.model.typed_json import decode_value
from lakerunner.pipeline.read.memory import digest_slices, fold_product, mix_into
from lakerunner.pipeline.read.walk import ARRAY, BOOL, BYTES, DOUBLE, INT, KVLIST, STRING
from lakerunner.pipeline.steps.arrow_columns import padded_texts
from lakerunner.pipeline.steps.attribute_values import kind_of
from lakerunner.pipeline.steps.points import KEY_SEED, NUMBER_MIX, PAIR_MIX, TEXT_SEED, VALUE_SEED

# Stored numbers depend on these: they never change.
_START, _MIX = np.uint64(0x7265736F75726365), np.uint64(0x9FB21C651E98DF25)
_KINDS = {"string": STRING, "bytes": BYTES, "int64": INT, "double": DOUBLE, "bool": BOOL}
_NAN = np.float64("nan")  # a map does not keep which NaN it was


def resource_ids(batch: pa.RecordBatch, types: Mapping[str, str]) -> Any:
    """Return the numbers of the rows' resources. `types` are those of the resource's columns, by key."""
    sets = np.zeros(batch.num_rows, np.uint64)
    for key, kind in types.items():
        _add_column(sets, key, batch.column(RESOURCE.prefix + key), kind)
    maps = batch.column(RESOURCE.map_column)
    if len(maps) and maps.offsets[0].as_py() != maps.offsets[-1].as_py():
        _add_maps(sets, batch, maps, types)
    numbers = np.full(batch.num_rows, _START)
    mix_into(numbers, sets, _MIX)
    indices, urls = _coded(batch.column("resource_schema_url"))
    mix_into(numbers, digest_slices(*padded_texts(urls), TEXT_SEED)[indices], _MIX)
    return numbers.view(np.int64)


def _add_column(sets: Any, key: str, column: pa.Array, kind: str) -> None:
    if pa.types.is_floating(column.type):
        column = _canonical_bits(column)
    indices, values = _coded(column)
    pairs = np.append(_pairs(_key_digests([key])[0], *_value_digests(values, kind)), np.uint64(0))  # 0 for null
    if len(values) == 1 and not column.null_count:
        sets += pairs[0]
    else:
        sets += pairs[indices]


def _coded(column: pa.Array) -> tuple[Any, pa.Array]:
    """Return (the number of each row's value, which is that behind the last one for null; the values)."""
    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    indices = coded.indices.fill_null(len(coded.dictionary)) if coded.null_count else coded.indices
    return indices.to_numpy(), coded.dictionary


def _canonical_bits(column: pa.Array) -> pa.Array:
    values = column.fill_null(0.0).to_numpy(zero_copy_only=False)
    bits = np.where(np.isnan(values), _NAN, values).view(np.int64)
    return pa.array(bits, mask=column.is_null().to_numpy(zero_copy_only=False))


def _value_digests(values: pa.Array, kind: str) -> tuple[Any, Any]:
    """Return (kinds, digests) of the values of a column; doubles are given as bits."""
    if kind == "json":
        of_texts = [ARRAY if text.startswith("[") else KVLIST for text in values.to_pylist()]
        return np.array(of_texts, np.int64), digest_slices(*padded_texts(values), VALUE_SEED)
    kinds = np.full(len(values), _KINDS[kind], np.int64)
    if kind in ("string", "bytes"):
        return kinds, digest_slices(*padded_texts(values), VALUE_SEED)
    return kinds, _number_digests(values.to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64))


def _key_digests(keys: list[str]) -> Any:
    return digest_slices(*padded_texts(pa.array(keys, pa.string())), KEY_SEED)


def _text_digests(texts: list[str]) -> tuple[Any, Any]:
    """Return (kinds, digests) of values that are given as typed JSON."""
    kinds = [kind_of(text) for text in texts]
    parts = [_part(text, kind) for text, kind in zip(texts, kinds, strict=True)]
    digests = digest_slices(
        *padded_texts(pa.array([part if isinstance(part, bytes) else b"" for part in parts])), VALUE_SEED
    )
    bits = _number_digests(np.array([part if isinstance(part, int) else 0 for part in parts], np.uint64))
    is_number = np.array([isinstance(part, int) for part in parts])
    return np.array(kinds, np.int64), np.where(is_number, bits, digests)


def _part(text: str, kind: int) -> bytes | int:
    """Return what is digested of a value: its bytes, or the bits of a number."""
    if kind in (ARRAY, KVLIST):
        return text.encode()
    value = decode_value(text)
    match value:
        case str():
            return value.encode()
        case bytes():
            return value
        case float():
            return int(struct.unpack("<Q", struct.pack("<d", _NAN if value != value else value))[0])
        case bool() | int():
            return int(value) & 0xFFFFFFFFFFFFFFFF
    return 0


def _add_maps(sets: Any, batch: pa.RecordBatch, maps: pa.Array, types: Mapping[str, str]) -> None:
    """Add the pairs of the map column."""
    offsets = maps.offsets.to_numpy()
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    rows = np.repeat(np.arange(len(maps)), np.diff(offsets))
    key_of, keys = _coded(maps.keys.slice(first, count))
    text_of, texts = _coded(maps.items.slice(first, count))
    before = _before(rows, key_of)
    for number, key in enumerate(keys.to_pylist()):
        if key in types:  # the column has the first value of the key
            chosen = key_of == number
            there = batch.column(RESOURCE.prefix + key).is_valid().to_numpy(zero_copy_only=False)
            before[chosen] += there[rows[chosen]]
    kinds, digests = _text_digests(texts.to_pylist())
    pairs = _entry_pairs(_key_digests(keys.to_pylist())[key_of], kinds[text_of], before, digests[text_of])
    _add_by_row(sets, rows, pairs)


def _before(rows: Any, keys: Any) -> Any:
    """Return how many entries of the same row and key come before each."""
    order = np.lexsort((keys, rows))
    starts = np.append(True, (np.diff(rows[order]) != 0) | (np.diff(keys[order]) != 0))
    place = np.arange(len(order))
    before = np.empty(len(order), np.int64)
    before[order] = place - np.maximum.accumulate(np.where(starts, place, 0))
    return before


def _pairs(key: Any, kinds: Any, digests: Any) -> Any:
    return _entry_pairs(np.full(len(kinds), key), kinds, np.zeros(len(kinds), np.int64), digests)


@njit(cache=True)
def _entry_pairs(keys: Any, kinds: Any, before: Any, digests: Any) -> Any:
    out = np.empty(len(keys), np.uint64)
    for place in range(len(keys)):
        mark = fold_product(keys[place] ^ np.uint64(kinds[place] | before[place] << 3), PAIR_MIX)
        out[place] = fold_product(mark ^ digests[place], PAIR_MIX)
    return out


@njit(cache=True)
def _number_digests(bits: Any) -> Any:
    out = np.empty(len(bits), np.uint64)
    for place in range(len(bits)):
        out[place] = fold_product(bits[place] ^ VALUE_SEED, NUMBER_MIX)
    return out


@njit(cache=True)
def _add_by_row(sets: Any, rows: Any, pairs: Any) -> Any:
    for place in range(len(rows)):
        sets[rows[place]] += pairs[place]
