"""A PromQL question, and the contract of its answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from lakerunner.plan.vectors.expression import Kind
from lakerunner.plan.vectors.notes import Note
from lakerunner.plan.vectors.values import Samples, Scalar, Steps, String, Vector
from lakerunner.query.account import Account

LOOKBACK_MS = 300_000


@dataclass(frozen=True)
class MetricsQuestion:
    """`instant`: one moment, which alone may give a range vector. `partial`: what cannot be read is named in the
    account instead of being an error."""

    text: str
    steps: Steps
    instant: bool
    now_ns: int
    lookback_ms: int = LOOKBACK_MS
    partial: bool = False


@dataclass(frozen=True)
class Group:
    """A stretch of the question's steps and the value there; its series have their final labels. Samples: of a range
    vector. Series are sorted by labels, but those of an instant in the order of the evaluation."""

    steps: Steps
    value: Vector | Scalar | String | Samples


class MetricsAnswer(Protocol):
    """Groups in the order of time, as they are worked out; a series may be in many. An answer that ends without an
    error is whole, but for what its account names as missing."""

    @property
    def kind(self) -> Kind:
        """Of the expression, before anything is worked out."""

    @property
    def notes(self) -> tuple[Note, ...]:
        """So far; all of them at the end."""

    @property
    def account(self) -> Account:
        """What it took so far, from any thread."""

    def __iter__(self) -> Iterator[Group]:
        """Once. UserError when the query fails, TooLarge past a limit."""

    def close(self) -> None:
        """Stop the work, from any thread. Closing twice is fine."""
