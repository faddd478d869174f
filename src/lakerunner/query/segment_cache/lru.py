"""A cache of parsed values, bounded by bytes; the least recently used go first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class LruCache(Generic[T]):
    """Safe to use from many threads. The bytes of all values together never exceed `max_bytes`."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._kept: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable) -> T | None:
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, value: T, bytes_: int) -> None:
        with self._lock:
            if key not in self._kept:
                self._kept[key] = value, bytes_
                self._bytes += bytes_
            while self._bytes > self._max_bytes:
                self._bytes -= self._kept.popitem(last=False)[1][1]
