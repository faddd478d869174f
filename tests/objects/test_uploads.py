"""Uploads that never ended, on local files and on a real S3 server."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from botocore.session import get_session

from lakerunner.model.errors import Unavailable, UserError
from lakerunner.objects.open import StoreAddress, open_store
from lakerunner.objects.uploads import LocalUploads, NoUploads, S3Uploads, Upload, open_uploads
from servers.seaweedfs import S3Server

BUCKET = "uploads"
FIVE_MB = 5 << 20


def test_local_uploads_are_half_written_files_anywhere_and_nothing_else(tmp_path: Path) -> None:
    address = StoreAddress((tmp_path / "store").as_uri())
    store = open_store(address)
    store.put("db/a/whole", b"x")
    half = tmp_path / "store" / "db" / "a" / ".lakerunner-put-0011"
    half.write_bytes(b"half")
    top = tmp_path / "store" / ".lakerunner-put-2233"
    top.write_bytes(b"")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / ".lakerunner-put-4455").write_bytes(b"not ours")
    (tmp_path / "store" / "linked").symlink_to(outside)
    uploads = open_uploads(address, store)
    assert isinstance(uploads, LocalUploads)
    found = sorted(uploads.list(), key=lambda upload: upload.key)
    assert [(upload.key, upload.bytes) for upload in found] == [
        (".lakerunner-put-2233", 0),
        ("db/a/.lakerunner-put-0011", 4),
    ]
    assert abs(found[0].started_ns - time.time_ns()) < 600e9
    for upload in (*found, *found):  # twice: the second time they are gone
        uploads.abort(upload)
    assert list(uploads.list()) == []
    assert [meta.key for meta in store.list("")] == ["db/a/whole"]
    assert (outside / ".lakerunner-put-4455").exists()


def test_no_object_is_aborted(tmp_path: Path) -> None:
    address = StoreAddress((tmp_path / "store").as_uri())
    store = open_store(address)
    store.put("db/a/whole", b"x")
    with pytest.raises(UserError, match="is not a half-written file"):
        open_uploads(address, store).abort(Upload("db/a/whole", "", 0, 1))
    assert len(list(store.list(""))) == 1


def test_memory_has_none() -> None:
    address = StoreAddress(f"memory://{uuid4()}")
    uploads = open_uploads(address, open_store(address))
    assert isinstance(uploads, NoUploads)
    assert list(uploads.list()) == []


class TestS3:
    @pytest.fixture
    def address(self, s3_server: S3Server) -> StoreAddress:
        return replace(s3_server.address(BUCKET), url=f"s3://{BUCKET}/below/{uuid4()}")

    @pytest.fixture
    def client(self, address: StoreAddress) -> Any:
        options = dict(address.options)
        return get_session().create_client(
            "s3",
            endpoint_url=options["endpoint"],
            region_name=options["region"],
            aws_access_key_id=options["access_key_id"],
            aws_secret_access_key=options["secret_access_key"],
        )

    def test_multipart_uploads_are_found_aborted_and_gone(self, address: StoreAddress, client: Any) -> None:
        prefix = address.url.removeprefix(f"s3://{BUCKET}/")
        ids = {}
        for key in ("db/a/one", "db/b/two", "otel-raw/of-another"):
            began = client.create_multipart_upload(Bucket=BUCKET, Key=f"{prefix}/{key}")
            ids[key] = began["UploadId"]
        client.upload_part(
            Bucket=BUCKET, Key=f"{prefix}/db/a/one", UploadId=ids["db/a/one"], PartNumber=1, Body=b"x" * FIVE_MB
        )
        store = open_store(address)
        store.put("db/a/whole", b"x" * (12 << 20))
        uploads = open_uploads(address, store)
        assert isinstance(uploads, S3Uploads)
        found = sorted(uploads.list(), key=lambda upload: upload.key)
        assert [(upload.key, upload.id) for upload in found] == [
            ("db/a/one", ids["db/a/one"]),
            ("db/b/two", ids["db/b/two"]),
        ]
        assert [upload.bytes for upload in found] == [FIVE_MB, 0]
        assert all(abs(upload.started_ns - time.time_ns()) < 600e9 for upload in found)
        for upload in (*found, *found):
            uploads.abort(upload)
        assert list(uploads.list()) == []
        assert [meta.key for meta in store.list("")] == ["db/a/whole"]
        left = client.list_multipart_uploads(Bucket=BUCKET, Prefix=f"{prefix}/").get("Uploads", [])
        assert [one["UploadId"] for one in left] == [ids["otel-raw/of-another"]]

    def test_an_absent_bucket_or_wrong_key_is_unavailable_and_tells_no_secret(self, s3_server: S3Server) -> None:
        absent = replace(s3_server.address_of_absent("nowhere"), retries=0)
        with pytest.raises(Unavailable, match="the object store does not list or abort uploads: NoSuchBucket"):
            list(S3Uploads(absent).list())
        options = {**dict(absent.options), "secret_access_key": "a-value-that-is-wrong"}
        wrong = replace(s3_server.address(BUCKET), options=tuple(options.items()), retries=0)
        with pytest.raises(Unavailable, match="uploads: SignatureDoesNotMatch") as raised:
            list(S3Uploads(wrong).list())
        assert "a-value-that-is-wrong" not in str(raised.value)
