"""The hash of labels by which Prometheus chooses series: XXH64, seed 0, of each name and value after its length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from lakerunner.model.labels import Labels

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)


def label_hashes(labels: Sequence[Labels]) -> npt.NDArray[np.uint64]:
    written = [b"".join(map(_written, own)) for own in labels]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum([len(one) for one in written], dtype=np.int64)])
    hashes = np.empty(len(written), np.uint64)
    _hashes(np.frombuffer(b"".join(written), np.uint8), offsets, hashes)
    return hashes


def _written(pair: tuple[str, str]) -> bytes:
    name, value = (text.encode() for text in pair)
    return _length(len(name)) + name + _length(len(value)) + value


def _length(size: int) -> bytes:
    return bytes([size]) if size < 255 else b"\xff" + size.to_bytes(3, "little")


@njit(cache=True, nogil=True)
def _hashes(data: Any, offsets: Any, hashes: Any) -> None:
    for number in range(len(hashes)):
        hashes[number] = _xxh64(data[offsets[number] : offsets[number + 1]])


@njit(cache=True, nogil=True)
def _turned(value: Any, bits: int) -> Any:
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


@njit(cache=True, nogil=True)
def _word(data: Any, start: int, size: int) -> Any:
    """Little-endian."""
    word = np.uint64(0)
    for place in range(size):
        word |= np.uint64(data[start + place]) << np.uint64(8 * place)
    return word


@njit(cache=True, nogil=True)
def _round(lane: Any, word: Any) -> Any:
    return _turned(lane + word * _P2, 31) * _P1


@njit(cache=True, nogil=True)
def _xxh64(data: Any) -> Any:
    size, at = len(data), 0
    if size >= 32:
        lanes = np.array([_P1 + _P2, _P2, np.uint64(0), np.uint64(0) - _P1], np.uint64)
        while at + 32 <= size:
            for lane in range(4):
                lanes[lane] = _round(lanes[lane], _word(data, at + 8 * lane, 8))
            at += 32
        found = _turned(lanes[0], 1) + _turned(lanes[1], 7) + _turned(lanes[2], 12) + _turned(lanes[3], 18)
        for lane in range(4):
            found = (found ^ _round(np.uint64(0), lanes[lane])) * _P1 + _P4
    else:
        found = _P5
    found += np.uint64(size)
    while at + 8 <= size:
        found = _turned(found ^ _round(np.uint64(0), _word(data, at, 8)), 27) * _P1 + _P4
        at += 8
    if at + 4 <= size:
        found = _turned(found ^ (_word(data, at, 4) * _P1), 23) * _P2 + _P3
        at += 4
    while at < size:
        found = _turned(found ^ (np.uint64(data[at]) * _P5), 11) * _P1
        at += 1
    found = (found ^ (found >> np.uint64(33))) * _P2
    found = (found ^ (found >> np.uint64(29))) * _P3
    return found ^ (found >> np.uint64(32))
