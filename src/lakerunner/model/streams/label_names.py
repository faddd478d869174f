"""Names of labels, as Loki makes them of attribute keys.

What always holds: a name consists of ASCII letters, digits and `_`, and does not begin with a digit.
"""

from __future__ import annotations

import re

_LABEL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_KEPT = re.compile(r"[^A-Za-z0-9]+")  # `_` too, because runs of it become a single one
_RESERVED = "__"


def is_label_name(text: str) -> bool:
    return _LABEL_NAME.fullmatch(text) is not None


def label_name(key: str) -> str:
    """Return the label name of an attribute key; an empty key has none.

    The underscores around `__name__` are kept: such names are reserved in Prometheus and Loki.
    """
    if len(key) > 2 * len(_RESERVED) and key.startswith(_RESERVED) and key.endswith(_RESERVED):
        return _RESERVED + _NOT_KEPT.sub("_", key[2:-2]) + _RESERVED
    name = _NOT_KEPT.sub("_", key)
    return f"key_{name}" if name[:1].isdigit() else name


def gives_label(key: str, name: str) -> bool:
    """Return whether an attribute of this key, if it is not a map, is a label of this name: by OTLP's rules or as a
    Loki stream sent it."""
    return name in (key, label_name(key))


def may_hold_label(key: str, name: str) -> bool:
    """Return whether a map with this key may have a member that is a label of this name."""
    return _NOT_KEPT.sub("_", name).strip("_").startswith(_NOT_KEPT.sub("_", label_name(key)).strip("_"))


def first_word(name: str) -> str:
    """Return with what a key begins that gives a label of this name, itself or by a member; "" if that is unknown."""
    return "" if name.startswith("key_") else _NOT_KEPT.split(name, 1)[0]
