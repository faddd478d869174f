"""Labels: a sorted, immutable set of name = value pairs, the identity of a series."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lakerunner.model.fingerprint import digest64


@dataclass(frozen=True, order=True)
class Labels:
    """Pairs sorted by name, no name twice."""

    pairs: tuple[tuple[str, str], ...]

    def __post_init__(self) -> None:
        names = [name for name, _ in self.pairs]
        if names != sorted(set(names)):
            raise ValueError(f"labels must be sorted and unique by name: {names}")

    @classmethod
    def of(cls, values: Mapping[str, str]) -> Labels:
        return cls(tuple(sorted(values.items())))

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self.pairs)

    def get(self, name: str) -> str | None:
        return dict(self.pairs).get(name)

    @property
    def fingerprint(self) -> int:
        return digest64(*(part for pair in self.pairs for part in pair))
