"""Which strings are keys: relative paths that every store, and every file system, takes as they are."""

from __future__ import annotations

import re

from lakerunner.model.errors import UserError

MAX_KEY_BYTES = 1024  # what S3, GCS and Azure allow

_PART = r"(?!\.{1,2}(?:/|\Z))[^/\x00-\x1f\x7f\ud800-\udfff]+"
_KEY = re.compile(rf"{_PART}(?:/{_PART})*")


def is_key(text: str) -> bool:
    return _KEY.fullmatch(text) is not None and len(text.encode()) <= MAX_KEY_BYTES


def checked_key(key: str) -> str:
    """The key itself, or a UserError that says what a key is."""
    if not is_key(key):
        raise UserError(
            f"invalid object key {key!r}: use 1 to {MAX_KEY_BYTES} bytes, '/' only between parts, "
            "no part empty, '.' or '..', no control characters"
        )
    return key
