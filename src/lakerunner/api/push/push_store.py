"""Store pushed requests in raw objects, each request once, whichever process dies in between.

When `keep` returns, every request of a batch without an error is in a raw object that is stored and announced.

Everything under `otel-raw/` is ingested, so the write of the object, which only succeeds if its key is free, is the
moment that counts. Before it, the index records which object a request belongs to. A request moves to another object
only after the key of the first was closed by an object without records. So a request is in at most one object, and a
sender that repeats it until it is acknowledged has it in exactly one. docs/decisions/0002-a-push-counts-once.md goes
through the possible crashes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from secrets import token_hex
from uuid import UUID

import pyarrow as pa

from lakerunner.index.pushes import Pushes, PushObject
from lakerunner.model.errors import Absent, Conflict, Corrupt, LakerunnerError, TooLarge, Unavailable
from lakerunner.model.protobuf import varint
from lakerunner.model.source import RAW_PREFIX
from lakerunner.objects.store import ObjectMeta, ObjectStore
from lakerunner.pipeline.unpack import unpack

# After this time the same request counts as a new one.
REMEMBERED_SECONDS = 24 * 3600.0
# How long another process may be storing a request that it claimed. Taking it over sooner is safe, but wastes work.
CLAIM_SECONDS = 10.0
_EMPTY_MAX_BYTES = 100


@dataclass(frozen=True)
class PushFormat:
    """How requests of one protocol are stored. `collector` is the protocol's name in keys. `framed`: each request is
    preceded by its length as a varint; otherwise requests can be concatenated. `empty` is a request without records."""

    ending: str
    collector: str
    framed: bool
    empty: bytes

    def joined(self, requests: Iterable[bytes]) -> bytes:
        if not self.framed:
            return b"".join(requests)
        return b"".join(part for data in requests for part in (varint(len(data)), data))

    def packed(self, requests: Iterable[bytes]) -> bytes:
        """Return the object of these requests. Compared with isal's gzip at level 1, zstd makes objects of half to
        three quarters of the size in slightly more time."""
        packed: bytes = pa.Codec("zstd", 1).compress(self.joined(requests), asbytes=True)
        return packed


PUSH_FORMATS = {
    "otlp": PushFormat(".binpb.zst", "otlp", framed=False, empty=b"\x0a\x00"),
    "prw1": PushFormat(".prw1.zst", "prometheus", framed=True, empty=b""),
    "prw2": PushFormat(".prw2.zst", "prometheus", framed=True, empty=b""),
    "lokipb": PushFormat(".lokipb.zst", "loki", framed=True, empty=b""),
    "lokijson": PushFormat(".lokijson.zst", "loki", framed=True, empty=b'{"streams":[]}'),
}


@dataclass(frozen=True)
class Origin:
    """Organization, signal and format: the same for all requests of an object."""

    organization: UUID
    signal: str
    format: str

    def new_key(self, now_ns: int) -> str:
        """Return an unused key. Day and hour are for people, and for expiry rules of the store by prefix. The time in
        the name keeps lines of equal time in the order of their requests: ingest takes objects in the order of keys."""
        moment = datetime.fromtimestamp(now_ns // 1_000_000_000, UTC)
        form = PUSH_FORMATS[self.format]
        name = f"{self.signal}_{now_ns:016x}{token_hex(8)}{form.ending}"
        return f"{RAW_PREFIX}{self.organization}/{form.collector}/{moment:%Y%m%d/%H}/{name}"


@dataclass(frozen=True)
class PushStore:
    """Stores requests. `announce` records stored objects."""

    store: ObjectStore
    pushes: Pushes
    announce: Callable[[Sequence[ObjectMeta]], object]
    claim_seconds: float = CLAIM_SECONDS

    def keep(self, origin: Origin, requests: Mapping[bytes, bytes], now_ns: int) -> dict[bytes, LakerunnerError]:
        """Store these requests, by digest; return the errors of those that were not stored. Requests that were stored
        before are not stored again."""
        key = origin.new_key(now_ns)
        claimed = self.pushes.claim(origin.organization, origin.signal, key, list(requests))
        errors: dict[bytes, LakerunnerError] = {}
        mine = set(claimed.mine)
        for found in set(claimed.others.values()):
            digests = {digest for digest, other in claimed.others.items() if other == found}
            try:
                mine |= self._found(origin, found, digests, claimed.object)
            except LakerunnerError as error:
                errors.update(dict.fromkeys(digests, error))
        for digest in requests.keys() - mine - claimed.others.keys():
            errors[digest] = Unavailable("the index dropped this request at this moment: send it again")
        if mine:
            data = PUSH_FORMATS[origin.format].packed(requests[digest] for digest in requests if digest in mine)
            try:
                self._store(claimed.object, key, data)
            except LakerunnerError as error:
                errors.update(dict.fromkeys(mine, error))
        return errors

    def _found(self, origin: Origin, found: PushObject, digests: set[bytes], heir: int) -> frozenset[bytes]:
        """Return those of the requests claimed for the object `found` that must now be stored in `heir`."""
        if found.stored:
            return frozenset()
        if found.seconds < self.claim_seconds:
            raise Unavailable("this request is still being stored: send it again to get the result")
        if not self._closed(found.key, PUSH_FORMATS[origin.format]):
            self._announce(found.id, found.key)
            return frozenset()
        taken = self.pushes.take_over(origin.organization, origin.signal, digests, holder=found.id, heir=heir)
        if taken != digests:
            raise Unavailable("another process is storing this request: send it again to get the result")
        return taken

    def _closed(self, key: str, form: PushFormat) -> bool:
        """Close the key with an empty object if it is free. True: it has no requests and never will. False: its
        requests are stored."""
        with suppress(Conflict):
            self.store.put(key, form.packed([form.empty]), if_absent=True)
        try:
            data = self.store.get(key, max_bytes=_EMPTY_MAX_BYTES)
            return unpack(key, data, _EMPTY_MAX_BYTES)[1] == form.joined([form.empty])
        except (TooLarge, Corrupt):  # larger than any object without records, packed or unpacked
            return False

    def _store(self, number: int, key: str, data: bytes) -> None:
        meta = None
        try:
            meta = self.store.put(key, data, if_absent=True)
        except Conflict:
            # Either an earlier attempt of ours wrote it and the answer was lost, or another process closed the key
            # because it considered this one dead.
            if not self._holds(key, data):
                raise Unavailable("storing took too long and was cancelled: send the request again") from None
        self._announce(number, key, meta)

    def _holds(self, key: str, data: bytes) -> bool:
        try:
            return self.store.get(key, max_bytes=len(data)) == data
        except TooLarge:
            return False

    def _announce(self, number: int, key: str, meta: ObjectMeta | None = None) -> None:
        """Announce the object; its metadata is read from the store if the write did not return it."""
        with suppress(Absent):  # it was deleted already, so there is nothing to announce
            self.announce([meta or self.store.head(key)])
        self.pushes.stored(number, forget_seconds=REMEMBERED_SECONDS)
