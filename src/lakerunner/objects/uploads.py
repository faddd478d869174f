"""Uploads that were begun and never completed, by store.

file    files that a writer left half-written, which no listing of objects shows
s3      multipart uploads below our segments, which cost storage until they are aborted
gs, az  none are looked for: Azure drops uncommitted blocks after a week by itself, and a lifecycle rule of the
        bucket (AbortIncompleteMultipartUpload) does it for GCS
memory  there are none

S3 is called through botocore, because obstore does not list uploads. Endpoint, region and credentials are the store's
options; what they leave out, AWS's usual chain finds, as obstore does. Only what is below `db/` is looked at: others
may upload raw input, at their own pace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from lakerunner.model.errors import Unavailable, UserError
from lakerunner.model.source import SEGMENT_PREFIX
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
        """Yield all uploads that have not completed, in pages, also young ones, which may be in progress."""

    def abort(self, upload: Upload) -> None:
        """Abort an upload. One that is gone already is not an error."""


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
        """Do nothing: there are none."""


def open_uploads(address: StoreAddress, store: ObjectStore) -> Uploads:
    """Return the uploads of the store that this address opened."""
    if isinstance(store, LocalStore):
        return LocalUploads(store)
    if address.url.startswith("s3://"):
        return S3Uploads(address)
    return NoUploads()


# ---- S3

# obstore's names, without the aws_ that may stand before each, to botocore's.
_OPTIONS = {
    "region": "region_name",
    "default_region": "region_name",
    "endpoint": "endpoint_url",
    "endpoint_url": "endpoint_url",
    "access_key_id": "aws_access_key_id",
    "secret_access_key": "aws_secret_access_key",
    "token": "aws_session_token",
    "session_token": "aws_session_token",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_GONE_CODES = {"NoSuchUpload", "404"}


class S3Uploads:
    def __init__(self, address: StoreAddress) -> None:
        from botocore import UNSIGNED
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.session import get_session

        url = urlsplit(address.url)
        self._bucket = url.netloc
        path = unquote(url.path).strip("/")
        self._prefix = f"{path}/" if path else ""
        self._failures = (BotoCoreError, ClientError)
        options = {name.lower().removeprefix("aws_"): value for name, value in address.options}
        config = Config(
            connect_timeout=5,
            read_timeout=30,
            retries={"mode": "standard", "total_max_attempts": address.retries + 1},
            signature_version=UNSIGNED if _is_true(options, "skip_signature") else None,
            s3={"addressing_style": "virtual" if _is_true(options, "virtual_hosted_style_request") else "path"},
        )
        arguments = {_OPTIONS[name]: value for name, value in options.items() if name in _OPTIONS}
        if _is_true(options, "allow_invalid_certificates"):
            arguments["verify"] = False  # type: ignore[assignment]
        try:
            self._client = get_session().create_client("s3", config=config, **arguments)
        except (BotoCoreError, ValueError):
            # Not chained: the text of the error may quote the options' values.
            raise UserError(f"cannot list the uploads of s3://{self._bucket}: check the store's options") from None

    def list(self) -> Iterator[Upload]:
        marks: dict[str, str] = {}
        while True:
            answer = self._call(
                "list_multipart_uploads", Bucket=self._bucket, Prefix=self._prefix + SEGMENT_PREFIX, **marks
            )
            for one in answer.get("Uploads", []):
                key, id_ = one["Key"], one["UploadId"]
                if key.startswith(self._prefix + SEGMENT_PREFIX):
                    yield Upload(key.removeprefix(self._prefix), id_, _ns(one["Initiated"]), self._size(key, id_))
            following = {
                "KeyMarker": answer.get("NextKeyMarker") or "",
                "UploadIdMarker": answer.get("NextUploadIdMarker") or "",
            }
            if not answer.get("IsTruncated") or following == marks or not following["KeyMarker"]:
                return
            marks = following

    def abort(self, upload: Upload) -> None:
        try:
            self._client.abort_multipart_upload(Bucket=self._bucket, Key=self._prefix + upload.key, UploadId=upload.id)
        except self._failures as error:
            if _error_code(error) not in _GONE_CODES:
                raise self._unavailable(error) from None

    def _size(self, key: str, id_: str) -> int:
        """Return the size of the first thousand parts, which is all that we write; 0 if the upload has just ended."""
        try:
            parts = self._client.list_parts(Bucket=self._bucket, Key=key, UploadId=id_).get("Parts", [])
        except self._failures as error:
            if _error_code(error) in _GONE_CODES:
                return 0
            raise self._unavailable(error) from None
        return sum(part["Size"] for part in parts)

    def _call(self, action: str, **arguments: Any) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = getattr(self._client, action)(**arguments)
        except self._failures as error:
            raise self._unavailable(error) from None
        return answer

    def _unavailable(self, error: Exception) -> Unavailable:
        return Unavailable(
            f"the object store does not list or abort uploads: {_error_code(error) or type(error).__name__}",
            detail=f"s3://{self._bucket}",
        )


def _error_code(error: Exception) -> str:
    answer: Mapping[str, Any] = getattr(error, "response", {})
    return str(answer.get("Error", {}).get("Code", ""))


def _is_true(options: Mapping[str, str], name: str) -> bool:
    return options.get(name, "").lower() in ("1", "true", "yes", "on")


def _ns(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000
