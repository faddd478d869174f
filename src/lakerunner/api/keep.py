"""How pushed requests become a raw object, each of them once, whatever dies in between.

Comes in: a batch of requests of one organization, signal and format. Goes out: when `keep` returns, every request that
it has no error for is in a raw object that is stored and announced.

What always holds: whatever lies under `otel-raw/` is ingested, whoever announces it, so the write of the object, which
only succeeds if its key is free, is the moment that counts. The index says before that moment which object a request
belongs to. A request moves to another object only after the first one's key was closed with an object without
records. So a request is in one object at most, and a sender that repeats it until we say yes has it in one.
docs/decisions/0002-a-push-counts-once.md goes through the crashes one by one.
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

# A request that was answered so long ago may be sent again as a new one.
REMEMBERED_SECONDS = 24 * 3600.0
# Whoever claimed a request may be storing it for so long. Taking it over sooner would be safe too, but make work.
CLAIM_SECONDS = 10.0
_EMPTY_MAX_BYTES = 100


@dataclass(frozen=True)
class PushFormat:
    """`collector` stands for the door in keys. `framed`: each request has its length before it, as a varint; the
    others can simply follow each other. `empty` is a request without records."""

    ending: str
    collector: str
    framed: bool
    empty: bytes

    def joined(self, requests: Iterable[bytes]) -> bytes:
        if not self.framed:
            return b"".join(requests)
        return b"".join(part for data in requests for part in (varint(len(data)), data))

    def packed(self, requests: Iterable[bytes]) -> bytes:
        """The object that holds these requests. Beside gzip by isal at its level 1, zstd makes objects of half to
        three quarters of the size in a little more time."""
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
    """Whose requests these are and what they are: all of one object are alike in this."""

    organization: UUID
    signal: str
    format: str

    def new_key(self, now_ns: int) -> str:
        """One that was never used. The day and hour are for people and for retention by prefix."""
        moment = datetime.fromtimestamp(now_ns // 1_000_000_000, UTC)
        form = PUSH_FORMATS[self.format]
        name = f"{self.signal}_{token_hex(16)}{form.ending}"
        return f"{RAW_PREFIX}{self.organization}/{form.collector}/{moment:%Y%m%d/%H}/{name}"


@dataclass(frozen=True)
class Keeper:
    """`announce` takes stored objects as the store shows them."""

    store: ObjectStore
    pushes: Pushes
    announce: Callable[[Sequence[ObjectMeta]], object]
    claim_seconds: float = CLAIM_SECONDS

    def keep(self, origin: Origin, requests: Mapping[bytes, bytes], now_ns: int) -> dict[bytes, LakerunnerError]:
        """Requests by their digests; why some of them were not kept. What was kept before is not kept again."""
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
        """Those of the requests that were claimed for the object `found` and must be stored with `heir`."""
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
        """True: the key holds nothing and never will. False: its requests are there."""
        with suppress(Conflict):
            self.store.put(key, form.packed([form.empty]), if_absent=True)
        try:
            data = self.store.get(key, max_bytes=_EMPTY_MAX_BYTES)
            return unpack(key, data, _EMPTY_MAX_BYTES)[1] == form.joined([form.empty])
        except (TooLarge, Corrupt):  # larger than an object without records ever is, packed or unpacked
            return False

    def _store(self, number: int, key: str, data: bytes) -> None:
        meta = None
        try:
            meta = self.store.put(key, data, if_absent=True)
        except Conflict:
            # Written by a try of ours whose answer was lost, or closed by someone who thought us dead.
            if not self._holds(key, data):
                raise Unavailable("storing took too long and was cancelled: send the request again") from None
        self._announce(number, key, meta)

    def _holds(self, key: str, data: bytes) -> bool:
        try:
            return self.store.get(key, max_bytes=len(data)) == data
        except TooLarge:
            return False

    def _announce(self, number: int, key: str, meta: ObjectMeta | None = None) -> None:
        """Announce the object, which the store is asked for where the write did not say it all."""
        with suppress(Absent):  # it is gone already: there is nothing to lose
            self.announce([meta or self.store.head(key)])
        self.pushes.stored(number, forget_seconds=REMEMBERED_SECONDS)
