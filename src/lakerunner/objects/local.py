"""Objects as files below one directory.

Not on obstore, whose local store does not sync what it writes, follows symbolic links to anywhere, and fails
a whole listing on one file name that is not UTF-8.

What always holds: a file under its final name is complete and on disk. Every path is opened part by part from the root
and no symbolic link below the root is followed, so nothing outside it is ever read or written. Names that cannot be
keys, links, devices and half-written files are not objects and are not listed.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader, BufferedWriter
from pathlib import Path
from secrets import token_hex

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

_ETAG_BYTES = 16
_COPY_BYTES = 1 << 20
_NAME = "the local store"  # messages reach clients, who must not see the server's directories
_HALF_WRITTEN = ".lakerunner-put-"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a named pipe must not wait for a writer.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_OBJECT = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP}


class LocalStore:
    """The ObjectStore of `file://`. The etag is a digest of the content: obstore's and the file system's own marks
    (inode, time) change when a store is copied, and every raw file would be ingested again."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def bucket(self) -> str:
        return "local"

    def put(self, key: str, data: bytes | memoryview, *, if_absent: bool = False) -> ObjectMeta | None:
        status = self._put(key, lambda file: file.write(data), if_absent)
        etag = hashlib.blake2b(data, digest_size=_ETAG_BYTES).hexdigest()
        return ObjectMeta(key, status.st_size, etag, status.st_mtime_ns)

    def put_file(self, key: str, path: Path) -> None:
        with path.open("rb") as source:
            self._put(key, lambda file: shutil.copyfileobj(source, file, _COPY_BYTES), if_absent=False)

    def _put(self, key: str, write: Callable[[BufferedWriter], object], if_absent: bool) -> os.stat_result:
        parents, name = self._split(key)
        temporary = _HALF_WRITTEN + token_hex(8)
        with _failures("write", key, writing=True), self._directory(parents, create=True) as directory:
            try:
                status = _write_synced(temporary, write, directory)
                if if_absent:
                    os.link(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
                else:
                    os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
            except FileExistsError:
                os.fsync(directory)  # the winner's file must be on disk before anyone relies on it
                raise Conflict(f"object {key} of {_NAME} exists already") from None
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=directory)
            os.fsync(directory)
        return status

    def get(self, key: str, *, max_bytes: int) -> memoryview:
        return self._read_all(key, max_bytes)[1]

    def fetch(self, key: str, *, max_bytes: int) -> tuple[ObjectMeta, memoryview]:
        modified_ns, data = self._read_all(key, max_bytes)
        etag = hashlib.blake2b(data, digest_size=_ETAG_BYTES).hexdigest()
        return ObjectMeta(key, len(data), etag, modified_ns), data

    def get_range(self, key: str, start: int, length: int) -> memoryview:
        if start < 0 or length < 0:
            raise UserError(f"not a range of object {key}: {length} bytes from {start}")
        with _failures("read", key), self._open(key) as file:
            size = os.fstat(file.fileno()).st_size
            if size < start + length:
                raise Corrupt(
                    f"object {key} of {_NAME} has {size} bytes, shorter than the requested {start + length} bytes"
                )
            file.seek(start)
            return memoryview(file.read(length))

    def local_path(self, key: str) -> Path | None:
        with _failures("read", key), self._open(key):
            return self.root / key

    def head(self, key: str) -> ObjectMeta:
        with _failures("read", key), self._open(key) as file:
            status = os.fstat(file.fileno())
            digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=_ETAG_BYTES))
            return ObjectMeta(key, status.st_size, digest.hexdigest(), status.st_mtime_ns)

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectMeta]:
        top = prefix.rpartition("/")[0]
        pending = [top] if not top or is_key(top) else []
        with _failures("list", prefix):
            while pending:
                for key, entry in self._entries(pending.pop()):
                    if not key.startswith(prefix):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        if after is None or f"{key}/" > after or after.startswith(f"{key}/"):
                            pending.append(key)
                    elif (after is None or key > after) and (meta := _meta(key, entry)):
                        yield meta

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            parents, name = self._split(key)
            with (
                suppress(Absent),
                _failures("delete", key),
                self._directory(parents) as directory,
            ):
                os.unlink(name, dir_fd=directory)

    def half_written(self) -> Iterator[ObjectMeta]:
        """Yield files that writers are writing now, or left when they died."""
        pending = [""]
        with _failures("list", "half-written files"):
            while pending:
                for key, entry in self._entries(pending.pop(), half_written=True):
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(key)
                    elif entry.name.startswith(_HALF_WRITTEN) and (meta := _meta(key, entry)):
                        yield meta

    def drop_half_written(self, key: str) -> None:
        """Delete a half-written file. One that is gone already is not an error."""
        *parents, name = checked_key(key).split("/")
        if not name.startswith(_HALF_WRITTEN):
            raise UserError(f"{key!r} is not a half-written file")
        with suppress(Absent), _failures("delete", key), self._directory(parents) as directory:
            os.unlink(name, dir_fd=directory)

    def _read_all(self, key: str, max_bytes: int) -> tuple[int, memoryview]:
        """Return when the file was modified, and its bytes."""
        with _failures("read", key), self._open(key) as file:
            status = os.fstat(file.fileno())
            if status.st_size > max_bytes:
                raise TooLarge(f"object {key} of {_NAME} has {status.st_size} bytes, more than the {max_bytes} allowed")
            return status.st_mtime_ns, memoryview(file.read(status.st_size))

    def _split(self, key: str) -> tuple[tuple[str, ...], str]:
        """Return the directories of the key, from the root on, and the file's name."""
        *parents, name = checked_key(key).split("/")
        if name.startswith(_HALF_WRITTEN):
            raise UserError(f"invalid object key {key!r}: names with {_HALF_WRITTEN} are reserved")
        return tuple(parents), name

    @contextmanager
    def _directory(self, parts: Iterable[str], *, create: bool = False) -> Iterator[int]:
        """Open the directory, reached from the root without following a link, and yield its descriptor."""
        try:
            current = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise Unavailable(f"{_NAME} cannot be opened: {error.strerror}") from error
        try:
            for part in parts:
                try:
                    child = os.open(part, _DIRECTORY, dir_fd=current)
                except FileNotFoundError:
                    if not create:
                        raise
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=current)
                    os.fsync(current)
                    child = os.open(part, _DIRECTORY, dir_fd=current)
                os.close(current)
                current = child
            yield current
        finally:
            os.close(current)

    @contextmanager
    def _open(self, key: str) -> Iterator[BufferedReader]:
        parents, name = self._split(key)
        with self._directory(parents) as directory:
            descriptor = os.open(name, _READ, dir_fd=directory)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise FileNotFoundError(errno.ENOENT, "not a regular file")
            with open(descriptor, "rb", closefd=False) as file:
                yield file
        finally:
            os.close(descriptor)

    def _entries(self, top: str, *, half_written: bool = False) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Yield what could be keys directly in this directory; nothing if there is no such directory. `half_written`:
        the store's own files too."""
        start = f"{top}/" if top else ""
        try:
            with (
                self._directory(top.split("/") if top else ()) as directory,
                os.scandir(directory) as entries,
            ):
                for entry in entries:
                    key = start + entry.name
                    if is_key(key) and (half_written or not entry.name.startswith(_HALF_WRITTEN)):
                        yield key, entry
        except (FileNotFoundError, NotADirectoryError):
            return


@contextmanager
def _failures(action: str, key: str, *, writing: bool = False) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _translate(error, action, key, writing) from error


def _translate(error: OSError, action: str, key: str, writing: bool) -> LakerunnerError:
    if error.errno == errno.ENAMETOOLONG:
        return UserError(f"invalid object key {key!r}: a part of it is too long for {_NAME}")
    if error.errno in _NO_OBJECT:
        if not writing:
            return Absent(f"{_NAME} holds no object {key}")
        return UserError(f"{_NAME} cannot hold object {key}: a directory, file or link is in its place")
    return Unavailable(f"{_NAME} cannot {action} {key}: {error.strerror}")


def _write_synced(name: str, write: Callable[[BufferedWriter], object], directory: int) -> os.stat_result:
    with open(os.open(name, _WRITE, 0o666, dir_fd=directory), "wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
        return os.fstat(file.fileno())


def _meta(key: str, entry: os.DirEntry[str]) -> ObjectMeta | None:
    """Return the meta data; None if the entry is not a plain file, or has just been deleted."""
    with suppress(FileNotFoundError):
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISREG(status.st_mode):
            return ObjectMeta(key, status.st_size, None, status.st_mtime_ns)
    return None
