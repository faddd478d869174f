"""How a plan is answered: what a request says beside its text."""

from __future__ import annotations

from dataclasses import dataclass

from lakerunner.model.errors import UserError
from lakerunner.model.segment import Segment
from lakerunner.plan.explain import Explain

DUCKDB, SPARK = "duckdb", "spark"
ENGINES = (DUCKDB, SPARK)


def read_engine(given: object) -> str:
    """Return the name of an engine, the first one for None or an empty text. UserError for any other value."""
    if given in (None, ""):
        return DUCKDB
    if not isinstance(given, str) or given not in ENGINES:
        raise UserError(f"unknown engine {given!r}: use one of {', '.join(ENGINES)}")
    return given


class SparkIsOff(UserError):
    """A query names engine=spark, and the setting query_spark is off."""

    def __init__(self) -> None:
        super().__init__("engine=spark is not available: the setting query_spark is off")


@dataclass(frozen=True)
class Options:
    """`partial`: what cannot be read is named in the account instead of being an error. `streamed`: series in groups of
    time, the first of them soon, which takes longer in all. `text`: what the user wrote, for positions in errors.
    `planned`: the seconds that making the plan took. `engine`: what runs the units, one of ENGINES. `whole`: rows are
    returned however many they are and however long that takes in all, for an export; each unit has its limits still.
    `segments`: read exactly these for the only leaf of a plan with an SQL finish, in place of those that the index
    would name."""

    now_ns: int
    partial: bool = False
    streamed: bool = False
    explain: Explain = Explain.NO
    text: str = ""
    planned: float = 0.0
    engine: str = DUCKDB
    whole: bool = False
    segments: tuple[Segment, ...] | None = None
