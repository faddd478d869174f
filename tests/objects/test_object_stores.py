"""The behaviour suite on every store that can be had here: memory, local files, a real S3 server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from lakerunner.model.errors import Unavailable, full_message
from lakerunner.objects.open import StoreAddress, open_store
from lakerunner.objects.store import ObjectStore
from servers.seaweedfs import S3Server
from suites.object_store import ObjectStoreSuite


class TestMemory(ObjectStoreSuite):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return open_store(StoreAddress(f"memory://{uuid4()}"))


class TestLocal(ObjectStoreSuite):
    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectStore:
        return open_store(StoreAddress((tmp_path / "a store").as_uri()))


class TestS3(ObjectStoreSuite):
    @pytest.fixture
    def store(self, s3_server: S3Server) -> ObjectStore:
        """Below a prefix of its own: what is outside must never show."""
        address = s3_server.address("suite")
        return open_store(replace(address, url=f"s3://suite/below/{uuid4()}"))

    def test_bucket_is_the_bucket(self, store: ObjectStore) -> None:
        assert store.bucket == "suite"

    def test_an_absent_bucket_is_not_an_absent_object(self, s3_server: S3Server) -> None:
        store = open_store(s3_server.address_of_absent("nowhere"))
        calls = (
            lambda: list(store.list("")),
            lambda: store.get("a", max_bytes=1),
            lambda: store.get_range("a", 0, 1),
            lambda: store.head("a"),
            lambda: store.delete(["a"]),
            lambda: store.put("a", b""),
            lambda: store.put("a", b"", if_absent=True),
        )
        for call in calls:
            with pytest.raises(Unavailable, match="bucket of the object store does not exist: create it"):
                call()

    @pytest.mark.parametrize("wrong", ["access_key_id", "secret_access_key"])
    def test_wrong_credentials_are_said_to_be_wrong(self, s3_server: S3Server, wrong: str) -> None:
        address = s3_server.address("suite")
        options = {**dict(address.options), wrong: "a-value-that-is-wrong"}
        store = open_store(replace(address, options=tuple(options.items())))
        calls = (
            lambda: store.get("a", max_bytes=1),
            lambda: store.head("a"),
            lambda: store.put("a", b""),
            lambda: list(store.list("")),
            lambda: store.delete(["a"]),
        )
        for call in calls:
            with pytest.raises(Unavailable, match=r"the object store cannot .* 403") as raised:
                call()
            assert "s3://suite" in raised.value.detail
            assert "Check the credentials" in raised.value.detail
            assert "a-value-that-is-wrong" not in full_message(raised.value)
            assert raised.value.__cause__ is None
