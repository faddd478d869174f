"""Names of segments' files: `db/{org}/{collector}/{yyyymmdd}/{signal}/{hh}/tbl_{id}.parquet` and what stands beside it.

What always holds: an object whose name does not read so, part for part, is none of ours, and no sweep takes it.
"""

from __future__ import annotations

import re
from uuid import UUID

from lakerunner.model.organization import NAME
from lakerunner.model.source import SEGMENT_PREFIX, SIGNAL_NAMES

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_FILE = re.compile(
    rf"{SEGMENT_PREFIX}{_UUID}/{NAME.pattern}/\d{{8}}/(?P<signal>{'|'.join(SIGNAL_NAMES)})/\d\d/"
    rf"tbl_(?P<id>{_UUID})\.[a-z0-9._]+"
)


def segment_in(key: str) -> UUID | None:
    """The id of the segment that the object belongs to."""
    found = _FILE.fullmatch(key)
    return UUID(found["id"]) if found else None


def signal_in(key: str) -> str:
    found = _FILE.fullmatch(key)
    return found["signal"] if found else ""
