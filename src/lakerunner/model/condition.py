"""Conditions that every wanted row meets: what segments and row groups are left out by.

Languages state them, for a scan (plan/scan.py); the index prunes segments by them (plan/fingerprints.py), workers prune
row groups (query/prune.py). They are plain values of columns and attributes, so that label views, which are part of the
model, state them as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakerunner.model.signal import Attribute


@dataclass(frozen=True)
class Equals:
    """The column, or the text of the attribute, is one of these values; of an id, lower-case hexadecimal text."""

    column: str | Attribute
    values: tuple[str, ...]


@dataclass(frozen=True)
class Contains:
    """The text of the column or attribute holds this literal; `ignore_case` as ILIKE does it, letter by letter."""

    column: str | Attribute
    literal: str
    ignore_case: bool = False


@dataclass(frozen=True)
class Present:
    """One of these attributes, at least, is not null."""

    attributes: tuple[Attribute, ...]


Condition = Equals | Contains | Present
