"""What all parsers do with what they find: make names of keys, rename what is stored already, report errors.

What always holds: a key becomes letters, digits and underscores; a name that the stream or the metadata has gets the
suffix `_extracted`; a label that was extracted before keeps its first value.
"""

from __future__ import annotations

import re
from functools import lru_cache

from lakerunner.logql.stages.hints import ParserHints
from lakerunner.logql.stages.line_labels import EXTRACTED, PRESERVE_ERROR, LineLabels

JSON_ERROR, LOGFMT_ERROR = "JSONParserErr", "LogfmtParserErr"
# What Go trims as space; Python's strip() would take the separators 0x1C to 0x1F too.
SPACES = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_NOT_WORD = re.compile("[^A-Za-z0-9_]")
_UNREADABLE = re.compile("[\ufffd\udc80-\udcff]")  # Go reads a byte that is not UTF-8 as U+FFFD
_DIGITS = frozenset("0123456789")
_MAX_KEYS = 4096


@lru_cache(maxsize=_MAX_KEYS)
def label_name(key: str) -> str:
    """Return the label's name for a key of a line; "" if the key is blank."""
    trimmed = key.strip(SPACES)
    return _NOT_WORD.sub("_", f"_{trimmed}" if trimmed[:1] in _DIGITS else trimmed)


@lru_cache(maxsize=_MAX_KEYS)
def nested_label_name(keys: tuple[str, ...]) -> str:
    """Return the label's name for the keys on the way to a member: joined by `_`, blank ones left out."""
    parts = [trimmed for key in keys if (trimmed := key.strip(SPACES))]
    joined = "_".join(_NOT_WORD.sub("_", part) for part in parts)
    return f"_{joined}" if joined[:1] in _DIGITS else joined


def is_readable(text: str) -> bool:
    """Return whether all of the text is UTF-8 and has no replacement character."""
    return text.isascii() or _UNREADABLE.search(text) is None


def readable(value: str) -> str:
    """Return the value with a space for each byte that is not UTF-8, and for each replacement character."""
    return value if value.isascii() else _UNREADABLE.sub(" ", value)


def name_to_set(labels: LineLabels, hints: ParserHints, name: str) -> str | None:
    """Return the name under which a parser sets a label, None if it leaves it."""
    own = name + EXTRACTED if labels.is_stored(name) else name
    return own if hints.wants(own) and own not in labels.extracted else None


def set_error(labels: LineLabels, hints: ParserHints, error: str, details: str = "") -> None:
    """Report that a parser failed. Details of an earlier error stay if there are no new ones."""
    labels.error = error
    if details:
        labels.error_details = details
    if hints.preserves_errors:
        labels.set_parsed(PRESERVE_ERROR, "true")
