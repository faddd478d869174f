"""The contract of a finish that gives series: what the coordinator asks of it, for every metric language.

Comes from a language's compiler; goes to query/series_answer.py, which reads the leaves and runs the finish over their
values, for all steps at once or for one group of steps after the other.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from lakerunner.plan.operator import Operator, RowOperator
from lakerunner.plan.plan import Finish, Plan
from lakerunner.series.bounds import Bounds
from lakerunner.series.expression import Kind
from lakerunner.series.language import Language
from lakerunner.series.notes import Notes
from lakerunner.series.values import Samples, Scalar, Steps, String, Vector

AnswerValue = Vector | Scalar | String | Samples
LeafValues = Mapping[Operator, Vector | Samples]
# Fetches samples whose need became known only during the evaluation, by an operator of the language.
Select = Callable[[Any], Samples]


class SampleOperator(RowOperator):
    """An operator that makes samples of rows. Its batches travel as rows; `fold` makes series of all of them."""

    @abstractmethod
    def fold(self, batches: Iterable[pa.RecordBatch]) -> Samples:
        """Join the batches of all units, which come in any order. Raise TooLarge past the query's limits."""


class SeriesFinish(Finish):
    @property
    @abstractmethod
    def language(self) -> Language: ...

    @property
    @abstractmethod
    def kind(self) -> Kind:
        """Return the kind of the whole expression, known before the evaluation."""

    @property
    @abstractmethod
    def steps(self) -> Steps: ...

    @property
    @abstractmethod
    def max_samples(self) -> int:
        """Return how many samples and values the query may hold at once."""

    @abstractmethod
    def within(self, steps: Steps) -> Plan:
        """Return the plan for some of the steps."""

    @abstractmethod
    def unfolded(self) -> Plan:
        """Return the plan in which workers do not aggregate."""

    @abstractmethod
    def check(self, bounds: Bounds) -> None:
        """Refuse an expression with more steps than may be held, before anything is read for it."""

    @abstractmethod
    def run(self, values: LeafValues, select: Select, bounds: Bounds, notes: Notes) -> AnswerValue:
        """Evaluate the rest of the expression. `values` are the results of the leaves by operator."""
