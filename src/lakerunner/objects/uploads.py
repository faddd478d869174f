"""Uploads that were begun and never ended, by store.

file    files that a writer left half-written, which no listing of objects shows
s3      multipart uploads below our segments, which cost storage until they are aborted (objects/uploads_s3.py)
gs, az  none are looked for: Azure drops uncommitted blocks after a week by itself, and a lifecycle rule of the
        bucket (AbortIncompleteMultipartUpload) does it for GCS
memory  there are none
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from lakerunner.objects.local import LocalStore
from lakerunner.objects.open import StoreAddress
from lakerunner.objects.store import ObjectStore


@dataclass(frozen=True)
class Upload:
    """`key` is what it would have become, or the half-written file itself; `id` names it where one key has several."""

    key: str
    id: str
    started_ns: int
    bytes: int


class Uploads(Protocol):
    def list(self) -> Iterator[Upload]:
        """All that have not ended, in pages, the young ones too: they may be under way."""

    def abort(self, upload: Upload) -> None:
        """One that is gone already is not an error."""


class LocalUploads:
    def __init__(self, store: LocalStore) -> None:
        self._store = store

    def list(self) -> Iterator[Upload]:
        for meta in self._store.half_written():
            yield Upload(meta.key, "", meta.modified_ns, meta.size)

    def abort(self, upload: Upload) -> None:
        self._store.drop_half_written(upload.key)


class NoUploads:
    def list(self) -> Iterator[Upload]:
        return iter(())

    def abort(self, upload: Upload) -> None:
        """There are none."""


def open_uploads(address: StoreAddress, store: ObjectStore) -> Uploads:
    """Of the store that this address opened."""
    if isinstance(store, LocalStore):
        return LocalUploads(store)
    if address.url.startswith("s3://"):
        from lakerunner.objects.uploads_s3 import S3Uploads  # botocore is slow to import

        return S3Uploads(address)
    return NoUploads()
