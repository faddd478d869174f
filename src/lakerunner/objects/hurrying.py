"""Reads of a store that may be away, for those whose clients wait.

What always holds: every read asks the store. While reads go well one that fails is tried again, for as long as the
store was opened with; after one that failed all the same none is, until a read goes well. So a store that is away is
waited for once, not once for each of a query's many reads, and a store that is back is found by the first of them.
"""

from __future__ import annotations

from pathlib import Path

from lakerunner.model.errors import Unavailable
from lakerunner.objects.store import SegmentStore


class HurryingStore:
    """Safe to use from many threads. Both are the same store; `patient` tries again."""

    def __init__(self, patient: SegmentStore, hurried: SegmentStore) -> None:
        self._patient = patient
        self._hurried = hurried
        self._is_away = False

    def get_range(self, key: str, start: int, length: int) -> memoryview:
        store = self._hurried if self._is_away else self._patient
        try:
            data = store.get_range(key, start, length)
        except Unavailable:
            self._is_away = True
            raise
        self._is_away = False
        return data

    def local_path(self, key: str) -> Path | None:
        return self._patient.local_path(key)
