"""Objects in a bucket: S3, GCS and Azure through obstore, and this process's memory through the same code.

obstore sends requests and retries them (objects/open.py sets the bounds); its errors are translated to ours. What
always holds: only an object can be Absent. A bucket that is down, forbidden or missing is Unavailable, because no input
may be set aside for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    PreconditionError,
)

from lakerunner.model.errors import (
    Absent,
    Conflict,
    Corrupt,
    LakerunnerError,
    TooLarge,
    Unavailable,
    UserError,
)
from lakerunner.objects.store import ObjectMeta, checked_key, is_key

if TYPE_CHECKING:
    from obstore import ObjectMeta as ObstoreMeta
    from obstore.store import ObjectStore as ObstoreStore

_NAME = "the object store"  # in messages that clients may see; buckets and endpoints go into `detail`
_PAGE = 1000  # keys that S3 lists, and deletes, in one request
_PART_BYTES, _PARTS = 8 << 20, 4  # of a file that is sent, at a time; S3 takes 10,000 parts of an object
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_ANSWER = re.compile(  # the server's answer inside obstore's text
    r"non-2xx status code: (?P<status>\d{3}) (?P<phrase>[\w -]+)"
    r"(?:[^<]*(?:<\?xml[^>]*>\s*)?<Error[^>]*>\s*<Code>(?P<code>\w+)</Code>\s*(?:<Message>(?P<message>[^<]*))?)?"
)
_NO_BUCKET = {"NoSuchBucket", "ContainerNotFound"}
_REFUSED = {"401", "403"}


class BucketStore:
    """The ObjectStore of every store that obstore supports. `name`, e.g. s3://lake, is for logs."""

    def __init__(self, store: ObstoreStore, bucket: str, name: str) -> None:
        self._store = store
        self._bucket = bucket
        self._name = name

    @property
    def bucket(self) -> str:
        return self._bucket

    def put(self, key: str, data: bytes | memoryview, *, if_absent: bool = False) -> ObjectMeta | None:
        """Write the object. Return None: the answer to a write has the etag, but not the time by which listings are
        compared."""
        checked_key(key)
        with self._failures("write", key):
            try:
                flat = memoryview(data).cast("B")  # the only kind of buffer that obstore takes
                obstore.put(self._store, key, flat, mode="create" if if_absent else "overwrite")
            except (AlreadyExistsError, PreconditionError):
                if not if_absent:
                    raise
                # It may be our own first try, whose answer was lost: then the work is done as well.
                raise Conflict(f"object {key} exists already") from None
        return None

    def put_file(self, key: str, path: Path) -> None:
        """Write the file, in parts if it is large; nobody sees any of them until the last is there."""
        checked_key(key)
        with path.open("rb") as file, self._failures("write", key):
            obstore.put(self._store, key, file, chunk_size=_PART_BYTES, max_concurrency=_PARTS)

    def get(self, key: str, *, max_bytes: int) -> memoryview:
        return self.fetch(key, max_bytes=max_bytes)[1]

    def fetch(self, key: str, *, max_bytes: int) -> tuple[ObjectMeta, memoryview]:
        checked_key(key)
        with self._failures("read", key):
            result = obstore.get(self._store, key)
            meta = _meta(result.meta)
            if meta.size > max_bytes:
                raise TooLarge(f"object {key} has {meta.size} bytes, more than the {max_bytes} allowed")
            return meta, memoryview(result.bytes())

    def get_range(self, key: str, start: int, length: int) -> memoryview:
        if start < 0 or length < 0:
            raise UserError(f"not a range of object {key}: {length} bytes from {start}")
        if length == 0:  # HTTP has no empty range
            data, enough = memoryview(b""), self.head(key).size >= start
        else:
            data = self._range(checked_key(key), start, length)
            enough = len(data) == length
        if not enough:
            raise Corrupt(f"object {key} is shorter than the requested {start + length} bytes")
        return data

    def local_path(self, key: str) -> Path | None:
        checked_key(key)
        return None

    def head(self, key: str) -> ObjectMeta:
        checked_key(key)
        with self._failures("look at", key):
            try:
                return _meta(obstore.head(self._store, key))
            except FileNotFoundError:
                # An answer to HEAD has no body, and only the body distinguishes a missing bucket from a missing object.
                return _meta(obstore.get(self._store, key).meta)

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectMeta]:
        """Apply prefix and `after` here: obstore lists whole directories only, and some servers (SeaweedFS) order by
        directory, so that leaving `after` to them loses keys.

        A foreign key that we do not allow (a//b) makes obstore abort the listing. Then it goes on directory by
        directory, so that only the one with that key is left out, and fails at the end. What had been listed before is
        yielded again.
        """
        top = prefix.rpartition("/")[0]
        if top and not is_key(top):
            return
        with self._failures("list", prefix):
            for found in self._below(top):
                key = found["path"]
                if key.startswith(prefix) and (after is None or key > after):
                    yield _meta(found)

    def _below(self, directory: str) -> Iterator[ObstoreMeta]:
        try:
            for page in obstore.list(self._store, directory or None, chunk_size=_PAGE):
                yield from page
            return
        except InvalidPathError as error:
            failure = error
        try:
            level = obstore.list_with_delimiter(self._store, directory or None)
        except InvalidPathError:  # the invalid key is in this directory itself
            raise failure from None
        yield from level["objects"]
        for child in level["common_prefixes"]:
            try:
                yield from self._below(child)
            except InvalidPathError as error:
                failure = error
        raise failure

    def delete(self, keys: Iterable[str]) -> None:
        remaining = iter(keys)
        while batch := [checked_key(key) for key in islice(remaining, _PAGE)]:
            with self._failures(f"delete {len(batch)} objects from", batch[0]):
                try:
                    obstore.delete(self._store, batch)
                except FileNotFoundError:
                    # GCS and Azure stop at the first absent key, and may not have deleted the others.
                    self._delete_singly(batch)

    def _delete_singly(self, keys: Iterable[str]) -> None:
        for key in keys:
            with suppress(Absent), self._failures("delete", key):
                obstore.delete(self._store, key)

    def _range(self, key: str, start: int, length: int) -> memoryview:
        """Return up to `length` bytes from `start`; none if the object ends before."""
        with self._failures("read", key):
            try:
                return memoryview(obstore.get_range(self._store, key, start=start, length=length))
            except BaseError as error:
                # How servers, and the memory store, report an object that ends before `start`.
                if _answer(str(error))["status"] == "416" or "Wanted range starting at" in str(error):
                    return memoryview(b"")
                raise

    @contextmanager
    def _failures(self, action: str, key: str) -> Iterator[None]:
        try:
            yield
        except (BaseError, FileNotFoundError) as error:
            # Not chained: obstore's text holds the whole request and answer, signatures included.
            raise self._translate(error, action, key) from None

    def _translate(self, error: Exception, action: str, key: str) -> LakerunnerError:
        text = str(error)
        answer = _answer(text)
        if answer["code"] in _NO_BUCKET:
            return Unavailable(
                "the bucket of the object store does not exist: create it, or correct the store's URL",
                detail=self._name,
            )
        if isinstance(error, FileNotFoundError):
            return Absent(f"{_NAME} holds no object {key}")
        advice = ""
        if answer["status"] in _REFUSED:
            advice = ". Check the credentials in the store's options, and their permissions"
        if isinstance(error, InvalidPathError):  # the text names a key, and no address
            return Unavailable(f"{_NAME} cannot {action} {key!r}: {_reason(text)}. Delete or rename that object")
        summary = " ".join(filter(None, (answer["status"], answer["phrase"], answer["code"]))) or "no answer"
        return Unavailable(
            f"{_NAME} cannot {action} {key!r}: {summary}", detail=f"{self._name}: {_reason(text)}{advice}"
        )


def _meta(found: ObstoreMeta) -> ObjectMeta:
    """Return our meta data. Etags lose their quotes: notifications have them bare, and both must name the same
    object."""
    etag = found["e_tag"]
    modified = (found["last_modified"] - _EPOCH) // timedelta(microseconds=1)
    return ObjectMeta(found["path"], found["size"], etag.strip('"') if etag else None, modified * 1000)


def _answer(text: str) -> dict[str, str]:
    """Return the server's `status` and `phrase`, and `code` and `message` of the body; "" for what is missing."""
    found = _ANSWER.search(text)
    return found.groupdict("") if found else dict.fromkeys(_ANSWER.groupindex, "")


def _reason(text: str) -> str:
    """Return the reason in one line: the server's own words, or else obstore's text without its debug part and without
    query strings, which can hold signatures."""
    answer = _answer(text)
    if answer["code"]:
        words = f"{answer['status']} {answer['phrase']}, {answer['code']}: {answer['message']}"
    else:
        words = re.sub(r"\?\S+", "", text.partition("\n\nDebug source")[0])
    return " ".join(words.split())[:300].rstrip(":. ")
