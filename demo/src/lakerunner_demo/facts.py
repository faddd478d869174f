"""What is known of a request or a chore beyond its course: who, what, how much, from where.

Comes in: a world and keys. Goes out: columns of bytes for the holes of log lines and spans. The fact of a name is the
same everywhere, so the lines and spans of one request name the same order, card and customer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lakerunner_demo.noise import I64, U64, below, draw
from lakerunner_demo.wire import (
    Column,
    Form,
    Hole,
    decimal_column,
    fixed_column,
    hex_column,
    varint_column,
    words_column,
)


@dataclass(frozen=True)
class Number:
    """Evenly from low to high - 1; as text and as a double with `point` digits behind the decimal point."""

    low: int
    high: int
    point: int = 0


@dataclass(frozen=True)
class Words:
    """One of the words. Facts that are drawn `along` with the same other one belong together."""

    words: tuple[str, ...]
    along: str = ""


@dataclass(frozen=True)
class Digest:
    """64 bits: sixteen hexadecimal digits as text; as an integer, one of 2^62 to 2^63 - 1."""


Fact = Number | Words | Digest

# fmt: off
_FIRST = ("ana", "ben", "chloe", "dario", "elif", "farid", "greta", "hiro", "ines", "jonas", "kofi", "lena", "mateo",
          "nadia", "oskar", "priya", "quentin", "rosa", "samir", "tove", "uma", "viktor", "wanda", "yusuf")
_LAST = ("almeida", "berg", "castillo", "dvorak", "eriksen", "fontaine", "gupta", "haddad", "ivanova", "jansen",
         "kowalski", "laurent", "mbeki", "novak", "okafor", "petrov", "rossi", "schmidt", "tanaka", "weber")
_PRODUCTS = ("Walnut Desk Lamp", "Linen Apron", "Cast Iron Pan", "Trail Backpack 32 l", "Enamel Mug", "Chess Set",
             "Merino Socks", "Espresso Grinder", "Bamboo Cutting Board", "Pocket Telescope", "Wool Blanket",
             "Camping Stove", "Ceramic Teapot", "Field Notebook", "Bicycle Bell", "Copper Kettle")
_PLACES = ("Lisbon, PT", "Rotterdam, NL", "Kraków, PL", "São Paulo, BR", "Zürich, CH", "Nairobi, KE", "Osaka, JP",
           "Toronto, CA", "Málaga, ES", "Leeds, GB", "Gothenburg, SE", "Tallinn, EE", "Montevideo, UY", "Hanoi, VN",
           "Austin, US", "Marseille, FR")
# fmt: on
_AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64; rv:138.0) Gecko/20100101 Firefox/138.0",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 14_5) AppleWebKit/605.1.15 Version/18.4 Safari/605.1.15",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/136.0.0.0 Safari/537.36",
    "ShopApp/4.22.1 (iOS 18.4; iPhone15,3)",
    "ShopApp/4.21.0 (Android 15; Pixel 8)",
    "python-httpx/0.28.1",
)


def _addresses() -> tuple[str, ...]:
    """Return addresses of the documentation networks, which belong to nobody."""
    networks = ("192.0.2", "198.51.100", "203.0.113")
    return tuple(f"{network}.{host}" for network in networks for host in range(1, 255))


FACTS: Mapping[str, Fact] = {
    "user": Number(1_000_000, 1_400_000),
    "session": Digest(),
    "request": Digest(),
    "cart": Digest(),
    "order": Number(100_000_000, 999_999_999),
    "cents": Number(499, 48_000, point=2),
    "fee": Number(290, 2_400, point=2),
    "rate": Number(6_400, 19_500, point=4),
    "card": Number(1000, 10_000),
    "items": Number(1, 8),
    "quantity": Number(1, 5),
    "units": Number(1, 5),
    "hits": Number(4, 60),
    "features": Number(24, 256),
    "candidates": Number(6, 90),
    "stock": Number(0, 900),
    "thread": Number(1, 33),
    "bytes": Number(820, 96_000),
    "port": Number(32_768, 60_999),
    "partition": Number(0, 12),
    "offset": Number(4_100_000, 9_900_000),
    "score": Number(4_000, 9_990, point=4),
    "waiting": Number(18, 140),
    "idle": Number(28, 46),
    "heap": Number(180, 410),
    "pause": Number(2, 40),
    "sku": Words(tuple(f"SKU-{n * 7919 % 9000 + 1000}" for n in range(400))),
    "product": Words(tuple(_PRODUCTS[n % len(_PRODUCTS)] for n in range(400)), along="sku"),
    "other_sku": Words(tuple(f"SKU-{n * 6131 % 9000 + 1000}" for n in range(400))),
    "currency": Words(("EUR", "USD", "GBP", "CAD", "CHF", "SEK", "BRL", "PLN")),
    "city": Words(tuple(place.split(", ")[0] for place in _PLACES), along="place"),
    "country": Words(tuple(place.split(", ")[1] for place in _PLACES), along="place"),
    "email": Words(tuple(f"{first}.{last}@example.com" for first in _FIRST for last in _LAST)),
    "network": Words(("visa", "mastercard", "amex", "maestro")),
    "carrier": Words(("northpost", "parcel-one", "blue-van", "harbour-freight")),
    "agent": Words(_AGENTS),
    "ip": Words(_addresses()),
    "campaign": Words(tuple(f"{season}-{n:02}" for season in ("spring", "outlet", "members") for n in range(20))),
    "tier": Words(("guest", "guest", "member", "member", "gold", "staff")),
    "experiment": Words(("control", "grid-v2", "fast-checkout")),
    "fresh": Number(0, 2),
    "mobile": Number(0, 2),
}

_GIVEN_POINTS = {"took": 3}  # microseconds, shown in milliseconds


@dataclass
class Facts:
    """The facts of these keys, each computed at its first use. `given` numbers come from the caller."""

    world: int
    keys: U64
    given: Mapping[str, I64 | U64] = field(default_factory=dict)
    _columns: dict[Hole, Column] = field(default_factory=dict)

    def column(self, hole: Hole) -> Column:
        if hole not in self._columns:
            self._columns[hole] = self._made(hole)
        return self._columns[hole]

    def _made(self, hole: Hole) -> Column:
        if hole.name in self.given:
            return number_column(self.given[hole.name], hole.form, _GIVEN_POINTS.get(hole.name, 0))
        fact = FACTS[hole.name]
        if isinstance(fact, Words):
            bits = draw(self.world, fact.along or hole.name, self.keys)
            return words_column(fact.words, below(bits, len(fact.words)))
        bits = draw(self.world, hole.name, self.keys)
        match fact:
            case Digest():
                return _digest_column(bits, hole.form)
            case Number(low, high, point):
                return number_column(low + below(bits, high - low), hole.form, point)


def number_column(numbers: I64 | U64, form: Form, point: int = 0) -> Column:
    match form:
        case Form.TEXT:
            return decimal_column(numbers.astype(np.int64), point)
        case Form.INT | Form.BOOL:
            return varint_column(numbers.astype(np.int64))
        case Form.DOUBLE:
            return fixed_column(numbers / np.float64(10**point))
        case Form.BYTES:
            return fixed_column(numbers)


def _digest_column(bits: U64, form: Form) -> Column:
    if form == Form.TEXT:
        return hex_column(bits)
    large: NDArray[np.int64] = ((bits >> np.uint64(2)) | np.uint64(1 << 62)).view(np.int64)
    return number_column(large, form)
