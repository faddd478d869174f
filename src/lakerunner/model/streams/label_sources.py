"""Which attributes can give labels of some names, so that no other attribute is read.

Comes in: names of labels. Goes out: a test of keys, in Python and as SQL. What always holds: an attribute that gives
one of the labels, by any rules and of any kind of stream, passes; others may pass too, since what a label is called
is decided in model/streams/. Keys are compared by their letters and digits, because names only change what is between
those, or put `key_` before a digit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_BETWEEN = re.compile("[^A-Za-z0-9]+")
_DIGIT_PREFIX = "key"
_GAP = "[^A-Za-z0-9]*"
_DEEPEST = 100  # letters of a name that SQL looks at; RE2 limits how deep groups are nested


class LabelSources:
    """The attributes that can give one of these labels."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(dict.fromkeys(_letters(name) for name in names))

    def can_be(self, key: str, *, is_map: bool) -> bool:
        """Return whether an attribute can give one of the labels; those of a map start with its own name."""
        own = _letters(key)
        forms = (own, _DIGIT_PREFIX + own)
        return any(name.startswith(forms) if is_map else name in forms for name in self._names)

    def condition(self, key: str) -> str:
        """Return SQL that is true for the key of an attribute of any type that can give one of the labels."""
        short = (name.removeprefix(_DIGIT_PREFIX) for name in self._names if name.startswith(_DIGIT_PREFIX))
        forms = "|".join(map(_prefixes, dict.fromkeys((*self._names, *short))))
        return f"regexp_full_match({key}, '{_GAP}(?:{forms})')" if self._names else "false"


def _prefixes(name: str) -> str:
    """Return the regular expression of what starts a name, with anything else between letters and digits."""
    found = "" if len(name) <= _DEEPEST else "(?s:.*)"
    for letter in reversed(name[:_DEEPEST]):
        found = f"(?:{letter}{_GAP}{found})?"
    return found


def _letters(text: str) -> str:
    return _BETWEEN.sub("", text)
