"""Find the tokens, grams of ids and trigrams of texts, as hashes: the entries of a row group in a text index.

Texts are folded into a scratch buffer and read there once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lakerunner.kernel_cache import njit
from lakerunner.model.text_index import (
    GRAM,
    GRAMS,
    ORDER,
    RUN_LEAST,
    TOKEN_LEAST,
    TOKENS,
    TRIGRAM_BITS,
    TRIGRAMS,
    WINDOW,
)
from lakerunner.pipeline.read.memory import AHEAD, PADDING, digest, load, prefetch, store

# A row group with more entries of a kind counts as having them all, so that an index cannot outgrow its segment.
MAX_ENTRIES = 1 << 20
_RECENT = 1 << 15
_TOKEN, _RUN = 1, 2  # classes of folded bytes
_ONES, _HIGH = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_ALL_TRIGRAMS = 1 << 3 * TRIGRAM_BITS
_CLASS_MASK = (1 << TRIGRAM_BITS) - 1
# As numbers, because jitted code cannot read objects; the last is for values of attributes.
_TOKEN_SEED, _GRAM_SEED, _TRIGRAM_SEED, _VALUE_SEED = TOKENS.seed, GRAMS.seed, TRIGRAMS.seed, 5


def _classes() -> Any:
    classes = np.zeros(256, np.uint8)
    classes[list(b"0123456789abcdefghijklmnopqrstuvwxyz_")] = _TOKEN | _RUN
    classes[ord("-")] = _RUN
    classes[128:] = _TOKEN
    return classes


_CLASS = _classes()


class GroupEntries(NamedTuple):
    """The entries of a row group. Row 0 of `hashes` has those of its tokens, row 1 of its grams, few of them twice:
    `recent` drops most repetitions, as it has, by the lowest bits of a hash, the hash that came last. Its row 2 is for
    values of attributes. `counts` is how many hashes each row has, and how many trigrams there are."""

    hashes: Any
    recent: Any
    trigrams: Any
    seen: Any
    counts: Any
    scratch: Any


class Strings(NamedTuple):
    """Texts of a row group: each has `size` bytes of `data` from `at` on; `data` has PADDING at its end."""

    data: Any
    at: Any
    size: Any


def find_entries(messages: Strings, values: tuple[Strings, ...]) -> tuple[Any, Any, Any]:
    """Return the hashes of the tokens, grams and trigrams of these texts; None for a kind with too many."""
    longest = max(int(texts.size.max(initial=0)) for texts in (messages, *values))
    # np.empty: pages that are never touched cost nothing.
    found = GroupEntries(
        np.empty((2, MAX_ENTRIES), np.uint64),
        np.zeros((3, _RECENT), np.uint64),
        np.empty(_ALL_TRIGRAMS, np.uint32),
        np.zeros(_ALL_TRIGRAMS, np.bool_),
        np.zeros(3, np.int64),
        np.empty(longest + PADDING, np.uint8),
    )
    _read_messages(*messages, found)
    for texts in values:
        _read_values(*texts, found)
    tokens, grams, trigrams = found.counts.tolist()
    hashes = [
        None if count == MAX_ENTRIES else _distinct(found.hashes[kind, :count])
        for kind, count in enumerate((tokens, grams))
    ]
    return *hashes, _trigram_hashes(found.trigrams[:trigrams])


@njit(cache=True)
def _fold(data: Any, at: Any, end: Any, out: Any) -> Any:
    """Write model/text_index.fold of these bytes into `out`; return how many bytes it has."""
    size = 0
    while at < end:
        word = load(data, at)
        if word & _HIGH == 0:
            # Eight ASCII bytes at once: set the high bit of each byte from "A" on and not from "[" on.
            upper = (word + _ONES * np.uint64(0x80 - 65)) & ~(word + _ONES * np.uint64(0x80 - 91)) & _HIGH
            store(out, size, word | upper >> np.uint64(2))
            step = min(end - at, 8)
            at += step
            size += step
            continue
        byte = data[at]
        if 65 <= byte <= 90:
            byte |= 0x20
        elif byte == 0xC5 and data[at + 1] == 0xBF:
            byte, at = np.uint8(115), at + 1
        elif byte == 0xC4 and (data[at + 1] == 0xB0 or data[at + 1] == 0xB1):
            byte, at = np.uint8(105), at + 1
        elif byte == 0xE2 and data[at + 1] == 0x84 and data[at + 2] == 0xAA:
            byte, at = np.uint8(107), at + 2
        out[size] = byte
        at += 1
        size += 1
    return size


@njit(cache=True)
def _add(kind: Any, value: Any, found: GroupEntries) -> Any:
    place = np.int64(value & np.uint64(_RECENT - 1))
    count = found.counts[kind]
    if found.recent[kind, place] != value and count < found.hashes.shape[1]:
        found.recent[kind, place] = value
        found.hashes[kind, count] = value
        found.counts[kind] = count + 1


@njit(cache=True)
def _hash(text: Any, at: Any, size: Any, seed: Any) -> Any:
    return digest(text, at, size, np.int32(seed)) | np.uint64(1)


@njit(cache=True)
def _add_grams(text: Any, at: Any, end: Any, found: GroupEntries) -> Any:
    """Add the grams of this long run that come first in some window."""
    least, least_at = np.uint64(0), -1
    for last in range(at + WINDOW - 1, end - GRAM + 1):
        first = last - WINDOW + 1
        if least_at < first:
            least_at = first
            least = digest(text, first, GRAM, np.int32(ORDER))
            for place in range(first + 1, last):
                rank = digest(text, place, GRAM, np.int32(ORDER))
                if rank < least:
                    least, least_at = rank, place
            rank = digest(text, last, GRAM, np.int32(ORDER))
            if rank < least:
                least, least_at = rank, last
        else:
            rank = digest(text, last, GRAM, np.int32(ORDER))
            if rank >= least:
                continue
            least, least_at = rank, last
        _add(1, _hash(text, least_at, GRAM, _GRAM_SEED), found)


@njit(cache=True)
def _add_runs(text: Any, size: Any, found: GroupEntries) -> Any:
    """Add the grams of the long runs of this text."""
    start = 0
    for at in range(size + 1):
        if at == size or _CLASS[text[at]] & _RUN == 0:
            if at - start >= RUN_LEAST:
                _add_grams(text, start, at, found)
            start = at + 1


@njit(cache=True)
def _add_tokens(text: Any, size: Any, found: GroupEntries) -> Any:
    """Add the tokens and trigrams of this text; return whether it has a long run."""
    start, run, longest = 0, 0, 0
    code: Any = 0
    for at in range(size):
        byte = text[at]
        kind = _CLASS[byte]
        code = (code << TRIGRAM_BITS | np.int64(byte) & _CLASS_MASK) & (_ALL_TRIGRAMS - 1)
        if not found.seen[code] and at >= 2:
            found.seen[code] = True
            found.trigrams[found.counts[2]] = code
            found.counts[2] += 1
        if kind & _TOKEN == 0:
            if TOKEN_LEAST <= at - start < RUN_LEAST:
                _add(0, _hash(text, start, at - start, _TOKEN_SEED), found)
            start = at + 1
            if kind & _RUN == 0:
                longest = max(longest, at - run)
                run = at + 1
    if TOKEN_LEAST <= size - start < RUN_LEAST:
        _add(0, _hash(text, start, size - start, _TOKEN_SEED), found)
    return max(longest, size - run) >= RUN_LEAST


@njit(cache=True)
def _read_messages(data: Any, at: Any, size: Any, found: GroupEntries) -> Any:
    for place in range(len(at)):
        prefetch(data, np.int64(at[min(place + AHEAD, len(at) - 1)]))
        start = np.int64(at[place])
        folded = _fold(data, start, start + np.int64(size[place]), found.scratch)
        if _add_tokens(found.scratch, folded, found):
            _add_runs(found.scratch, folded, found)


@njit(cache=True)
def _read_values(data: Any, at: Any, size: Any, found: GroupEntries) -> Any:
    """Add the long runs of strings; one that was seen recently is not read again."""
    for place in range(len(at)):
        if size[place] >= RUN_LEAST:
            start, length = np.int64(at[place]), np.int64(size[place])
            known = _hash(data, start, length, _VALUE_SEED)
            slot = np.int64(known & np.uint64(_RECENT - 1))
            if found.recent[2, slot] != known:
                found.recent[2, slot] = known
                _add_runs(found.scratch, _fold(data, start, start + length, found.scratch), found)


@njit(cache=True)
def _distinct(hashes: Any) -> Any:
    """Return each of these once, by a hash table with open addressing; 0 marks a free slot, since hashes are odd."""
    slots = 16
    while slots < 2 * len(hashes):
        slots *= 2
    table = np.zeros(slots, np.uint64)
    out = np.empty(len(hashes), np.uint64)
    count = 0
    for value in hashes:
        place = np.int64(value >> np.uint64(20)) & (slots - 1)
        while table[place] != 0 and table[place] != value:
            place = (place + 1) & (slots - 1)
        if table[place] == 0:
            table[place] = value
            out[count] = value
            count += 1
    return out[:count].copy()


@njit(cache=True)
def _trigram_hashes(codes: Any) -> Any:
    out = np.empty(len(codes), np.uint64)
    text = np.zeros(3 + PADDING, np.uint8)
    for index in range(len(codes)):
        code = np.int64(codes[index])
        for place in range(3):
            text[place] = code >> (2 - place) * TRIGRAM_BITS & _CLASS_MASK
        out[index] = _hash(text, np.int64(0), np.int64(3), _TRIGRAM_SEED)
    return out
