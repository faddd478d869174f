"""What was read of files and understood, kept for the next query: the last used, up to so many bytes.

Comes in: the object that it was read of, and how many bytes stand for it. What always holds: the bytes of all that is
kept are at most the bound.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Generic, TypeVar

from lakerunner.query.files import StoredObject

T = TypeVar("T")


class Kept(Generic[T]):
    """Safe to use from many threads."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._kept: OrderedDict[StoredObject, tuple[T, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, object_: StoredObject) -> T | None:
        with self._lock:
            found = self._kept.get(object_)
            if found is None:
                return None
            self._kept.move_to_end(object_)
            return found[0]

    def put(self, object_: StoredObject, value: T, bytes_: int) -> None:
        with self._lock:
            if object_ not in self._kept:
                self._kept[object_] = value, bytes_
                self._bytes += bytes_
            while self._bytes > self._max_bytes:
                self._bytes -= self._kept.popitem(last=False)[1][1]
