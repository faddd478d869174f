"""Find the rows with equal sort keys that are one row delivered twice.

Comes in: rows in the order of a merge. Goes out: the rows to keep: of equal rows the last (docs/formats/segments.md).
Each signal has a function that identifies its rows (pipeline/signals.py):

- metrics and spans: rows that are equal in every column, because a series has one point at a time and a span id names
  one span;
- logs: rows at the same position of the same delivery; rows without a delivery are always kept, even if equal;
- rollups: all rows of one key, because a bucket of a series has one row.

Rows are compared by a digest of 64 bits over their columns. Numbers are equal by their bits: a NaN equals itself, -0.0
does not equal 0.0. Maps are equal in any order of different keys, as attributes are; several values of one key have an
order.

If a run of equal sort keys does not fit in memory, the digests of its rows go to unnamed files, equal digests to the
same file. Memory then holds one byte for each row of the run, and the distinct digests of one file at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from tempfile import TemporaryFile
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.kernel_cache import njit
from lakerunner.model.signal import SCOPES
from lakerunner.pipeline.read.memory import digest_slices, fold_product, mix_into
from lakerunner.pipeline.steps.arrow_columns import is_textual, padded_texts

Columns = Mapping[str, pa.Array]
# (digests, has_identity) of these rows: those of one sort key are the same row where the digests are equal, if they
# have an identity at all.
Identify = Callable[[Columns, Any], tuple[Any, Any]]
_NUMBERS = ("value", "int_value", "is_int")
_DELIVERY = ("delivery", "delivery_row")
_PREFIXES = tuple(scope.prefix for scope in SCOPES)
_PAIR = np.dtype([("digest", np.uint64), ("place", np.int64)])
_FILES = 256  # at most, however many rows there are


def drop_repeated(identify: Identify, columns: Columns, order: Any, is_same: Any) -> Any:
    """Return the row numbers of `order` without rows that are repeated later. `is_same` tells whether a row has the
    sort key of the row before it in this order."""
    if not is_same.any():
        return order
    is_candidate = is_same.copy()
    is_candidate[:-1] |= is_same[1:]
    places = np.flatnonzero(is_candidate)
    run = np.cumsum(~is_same)[places]
    digests, has_identity = identify(columns, order[places])
    by_digest = np.lexsort((digests, run))
    comes_again = np.zeros(len(places), np.bool_)
    comes_again[by_digest[:-1]] = (np.diff(run[by_digest]) == 0) & (digests[by_digest[1:]] == digests[by_digest[:-1]])
    keep = np.ones(len(order), np.bool_)
    keep[places[comes_again & has_identity]] = False
    return order[keep]


def find_kept(identities: Iterable[tuple[Any, Any]], rows: int, at_once: int) -> Any:
    """Return which rows of a run to keep, from their (digests, has_identity). The run has at most `rows`; about
    `at_once` of them are compared at a time."""
    count = min(-(-rows // at_once), _FILES)
    with ExitStack() as stack:
        files: list[BinaryIO] = [stack.enter_context(TemporaryFile()) for _ in range(count)]
        keep = np.ones(_spill_digests(identities, files), np.bool_)
        for file in files:
            _strike_repeated(keep, file, at_once)
    return keep


def _spill_digests(identities: Iterable[tuple[Any, Any]], files: Sequence[BinaryIO]) -> int:
    """Write the digests to the files; return the number of rows. A row without an identity never equals another."""
    rows = 0
    for digests, has_identity in identities:
        pairs = np.empty(len(digests), _PAIR)
        pairs["digest"] = digests
        pairs["place"] = np.arange(rows, rows + len(digests))
        rows += len(digests)
        number = np.where(has_identity, digests % np.uint64(len(files)), len(files))
        for place in np.unique(number[number < len(files)]).tolist():
            files[int(place)].write(pairs[number == place].tobytes())
    return rows


def _strike_repeated(keep: Any, file: BinaryIO, at_once: int) -> None:
    """Clear `keep` for the rows of this file that are repeated later."""
    file.seek(0)
    last = np.empty(0, _PAIR)  # of each digest so far
    while data := file.read(at_once * _PAIR.itemsize):
        pairs = np.concatenate([last, np.frombuffer(data, _PAIR)])
        order = np.argsort(pairs["digest"], kind="stable")
        digests = pairs["digest"][order]
        again = order[:-1][digests[1:] == digests[:-1]]
        keep[pairs["place"][again]] = False
        last = np.delete(pairs, again)


def by_columns(columns: Columns, rows: Any) -> tuple[Any, Any]:
    """Identify spans: equal in every column."""
    taken = _take_columns(columns, rows)
    return digest_rows((taken[name] for name in sorted(taken)), len(rows)), True


def by_number(columns: Columns, rows: Any) -> tuple[Any, Any]:
    """Identify points: equal in every column. A number is in one of two columns, and may be in the other one in another
    segment: both count as what was sent."""
    taken = _take_columns(columns, rows)
    number = [taken.pop(name, None) for name in _NUMBERS]
    arrays = [taken[name] for name in sorted(taken)]
    return digest_rows([*arrays, *_sent_numbers(*number)], len(rows)), True


def _sent_numbers(double: pa.Array | None, whole: pa.Array | None, is_int: pa.Array | None) -> list[pa.Array]:
    """Return, for each number, whether it was sent as an integer, the integer, and the double."""
    if is_int is None:
        return []
    double = pa.nulls(len(is_int), pa.float64()) if double is None else double
    whole = pa.nulls(len(is_int), pa.int64()) if whole is None else whole
    # An integer that stands as a double is one that a double holds, and the other way round.
    ints = pc.if_else(is_int, pc.coalesce(whole, pc.cast(double, pa.int64(), safe=False)), None)
    doubles = pc.if_else(is_int, None, pc.coalesce(double, pc.cast(whole, pa.float64(), safe=False)))
    return [is_int, ints, doubles]


def by_delivery(columns: Columns, rows: Any) -> tuple[Any, Any]:
    """Identify records: the same position in the same delivery."""
    if not all(name in columns for name in _DELIVERY):
        return np.zeros(len(rows), np.uint64), False
    taken = _take_columns({name: columns[name] for name in _DELIVERY}, rows)
    valid = [array.is_valid().to_numpy(zero_copy_only=False) for array in taken.values()]
    return digest_rows(taken.values(), len(rows)), np.logical_and.reduce(valid)


def by_key(_: Columns, rows: Any) -> tuple[Any, Any]:
    """Identify rollups: a bucket of a series has one row."""
    return np.zeros(len(rows), np.uint64), True


def _take_columns(columns: Columns, rows: Any) -> dict[str, pa.Array]:
    places = pa.array(rows)
    return {name: _unify_nans(name, array.take(places)) for name, array in columns.items()}


def _unify_nans(name: str, array: pa.Array) -> pa.Array:
    """Make all NaNs of an attribute equal: only a column keeps which NaN it is, and the value may have been in the
    map."""
    if not pa.types.is_floating(array.type) or not name.startswith(_PREFIXES):
        return array
    return pc.if_else(pc.is_nan(array), float("nan"), array)


_TEXT, _NUMBER, _LIST, _MAP, _STRUCT, _ROW = (np.uint64(seed) for seed in (0x74, 0x6E, 0x6C, 0x6D, 0x73, 0x72))
_NULL = np.uint64(0x9FB21C651E98DF25)
_MIX = np.uint64(0xD6E8FEB86659FD93)


def digest_rows(columns: Iterable[pa.Array], rows: int) -> Any:
    """Return the digest of each of these rows over all columns."""
    digests = np.full(rows, _ROW, np.uint64)
    for column in columns:
        mix_into(digests, digest_values(column), _MIX)
    return digests


def digest_values(array: pa.Array) -> Any:
    """Return the digest of each value."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        digests = _digest_codes(array)
    elif is_textual(kind):
        digests = digest_slices(*padded_texts(array), _TEXT)
    elif pa.types.is_map(kind):
        at, first, end = _list_offsets(array)
        digests = _digest_maps(at, _digest_part(array.keys, first, end), _digest_part(array.items, first, end))
    elif pa.types.is_list(kind):
        at, first, end = _list_offsets(array)
        digests = _digest_lists(at, _digest_part(array.values, first, end))
    elif pa.types.is_struct(kind):
        digests = np.full(len(array), _STRUCT, np.uint64)
        for number in range(kind.num_fields):
            mix_into(digests, digest_values(array.field(number)), _MIX)
    else:
        digests = _digest_numbers(_number_bits(array))
    if array.null_count and not pa.types.is_dictionary(kind):
        digests[array.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return digests


def _digest_codes(array: pa.Array) -> Any:
    of_values = np.append(digest_values(array.dictionary), _NULL)
    return of_values[array.indices.fill_null(len(array.dictionary)).to_numpy(zero_copy_only=False)]


def _list_offsets(array: pa.Array) -> tuple[Any, int, int]:
    """Return (where each list starts, from 0, and the last ends; the first and the end of their values)."""
    at = array.offsets.to_numpy()
    return at - at[0], int(at[0]), int(at[-1])


def _digest_part(values: pa.Array, first: int, end: int) -> Any:
    return digest_values(values.slice(first, end - first))


def _number_bits(array: pa.Array) -> Any:
    if pa.types.is_boolean(array.type):
        return array.fill_null(False).to_numpy(zero_copy_only=False).astype(np.uint64)
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    if array.null_count:
        array = array.fill_null(0)
    values = array.to_numpy(zero_copy_only=False)
    if values.dtype == np.float64:
        return values.view(np.uint64)
    return values.astype(np.int64).view(np.uint64)


@njit(cache=True)
def _digest_numbers(bits: Any) -> Any:
    out = np.empty(len(bits), np.uint64)
    for row in range(len(bits)):
        out[row] = fold_product(bits[row] ^ _NUMBER, _MIX)
    return out


@njit(cache=True)
def _digest_lists(at: Any, values: Any) -> Any:
    out = np.empty(len(at) - 1, np.uint64)
    for row in range(len(out)):
        value = fold_product(_LIST ^ np.uint64(at[row + 1] - at[row]), _MIX)
        for index in range(at[row], at[row + 1]):
            value = fold_product(value ^ values[index], _MIX)
        out[row] = value
    return out


@njit(cache=True)
def _digest_maps(at: Any, keys: Any, values: Any) -> Any:
    """Add up the digests of the pairs, so that their order does not count; each pair includes how many of the same key
    come before it."""
    out = np.empty(len(at) - 1, np.uint64)
    for row in range(len(out)):
        total = _MAP
        for index in range(at[row], at[row + 1]):
            before = np.uint64(0)
            for other in range(at[row], index):
                before += np.uint64(keys[other] == keys[index])
            total += fold_product(fold_product(keys[index] ^ before, _MIX) ^ values[index], _MIX)
        out[row] = total
    return out
