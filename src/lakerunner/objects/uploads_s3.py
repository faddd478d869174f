"""Multipart uploads of S3 that never ended, below the prefix of our segments.

By botocore: obstore shows no uploads. Endpoint, region and credentials are the store's options; what they leave out,
AWS's usual chain finds, as obstore does. Only what stands below `db/` is looked at: raw input may be uploaded by
others, in their own time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote, urlsplit

from lakerunner.model.errors import Unavailable, UserError
from lakerunner.model.source import SEGMENT_PREFIX
from lakerunner.objects.open import StoreAddress
from lakerunner.objects.uploads import Upload

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
_GONE = {"NoSuchUpload", "404"}


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
            # Not told further: its text may quote the options' values.
            raise UserError(f"cannot list the uploads of s3://{self._bucket}: check the store's options") from None

    def list(self) -> Iterator[Upload]:
        marks: dict[str, str] = {}
        while True:
            answer = self._ask(
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
            if _code(error) not in _GONE:
                raise self._told(error) from None

    def _size(self, key: str, id_: str) -> int:
        """Of the first thousand parts, which is all of what we write; 0 if it has just ended."""
        try:
            parts = self._client.list_parts(Bucket=self._bucket, Key=key, UploadId=id_).get("Parts", [])
        except self._failures as error:
            if _code(error) in _GONE:
                return 0
            raise self._told(error) from None
        return sum(part["Size"] for part in parts)

    def _ask(self, action: str, **arguments: Any) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = getattr(self._client, action)(**arguments)
        except self._failures as error:
            raise self._told(error) from None
        return answer

    def _told(self, error: Exception) -> Unavailable:
        return Unavailable(
            f"the object store does not list or abort uploads: {_code(error) or type(error).__name__}",
            detail=f"s3://{self._bucket}",
        )


def _code(error: Exception) -> str:
    answer: Mapping[str, Any] = getattr(error, "response", {})
    return str(answer.get("Error", {}).get("Code", ""))


def _is_true(options: Mapping[str, str], name: str) -> bool:
    return options.get(name, "").lower() in ("1", "true", "yes", "on")


def _ns(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000
