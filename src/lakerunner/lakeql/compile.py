"""SQL text to plan: read, filled with its parameters, checked, resolved, rewritten.

Comes in: the text, its parameters, whose it is, and the one `now` of the query. Goes out: a plan, or an error that
says what is wrong and where. The plan holds no organization: a scan can be given the caller's own segments only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlglot import exp
from sqlglot.errors import UnsupportedError

from lakerunner.lakeql.allowed import check_allowed
from lakerunner.lakeql.bounds import check_bounds, check_depth
from lakerunner.lakeql.compare import Comparisons
from lakerunner.lakeql.constants import Constants
from lakerunner.lakeql.dialect import written
from lakerunner.lakeql.folded import fold_literals
from lakerunner.lakeql.parameters import put_values
from lakerunner.lakeql.prune import narrow_scans
from lakerunner.lakeql.resolve import Resolution, resolve
from lakerunner.lakeql.rewrite import (
    fix_now,
    further_columns,
    hide_further_columns,
    keep_names,
    keep_times_exact,
    name_counts,
    output_names,
    read_attributes,
    take_columns,
)
from lakerunner.lakeql.source import MAX_LENGTH, Source
from lakerunner.lakeql.spark import spark_sql
from lakerunner.lakeql.split import Names, Splitter
from lakerunner.lakeql.typed_attributes import read_numbers
from lakerunner.model.errors import UserError
from lakerunner.plan.plan import Plan
from lakerunner.plan.spark import SparkPlan
from lakerunner.plan.types import Types


def compile_sql(
    text: str,
    organization: UUID,
    now_ns: int,
    *,
    parameters: Mapping[str, Any] | None = None,
    types: Types | None = None,
    max_length: int = MAX_LENGTH,
) -> Plan:
    """The plan of one SELECT; `parameters` are the values of $1, $name, ... by what stands behind the $. UserError with
    a position where the text is wrong or asks for what is not available, NotAllowed where it asks for another
    organization, TooLarge beyond max_length characters. Without `types` workers group nothing."""
    source = Source(text)
    with _refusals():
        tree = source.parse(max_length)
        put_values(tree, parameters or {}, source)
        made = _rewritten(tree, source, organization, Constants(now_ns))
        return Splitter(made.resolution, made.names, made.named, types).plan(tree)


def compile_spark(
    text: str,
    organization: UUID,
    now_ns: int,
    *,
    parameters: Mapping[str, Any] | None = None,
    max_length: int = MAX_LENGTH,
) -> SparkPlan:
    """The same query as Spark runs it whole. Refuses what `compile_sql` refuses, and what means other things to
    Spark."""
    source, constants = Source(text), Constants(now_ns)
    with _refusals():
        tree = source.parse(max_length)
        put_values(tree, parameters or {}, source)
        made = _rewritten(tree, source, organization, constants)
        hide_further_columns(made.resolution, further_columns)
        keep_names(made.names)
        scans = tuple(draft.scan() for draft in made.resolution.drafts)
        return SparkPlan(written(tree), spark_sql(tree, scans, source, constants), scans)


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except RecursionError:
        raise UserError("the query is nested too deeply: give inner parts a name with WITH") from None
    except UnsupportedError as error:
        raise UserError(f"not available: {error}") from None


@dataclass(frozen=True)
class _Rewritten:
    """What is known of a tree that means the same over its scans, and is not yet split (lakeql/split.py)."""

    resolution: Resolution
    names: Names
    named: dict[int, set[str]]


def _rewritten(tree: exp.Query, source: Source, organization: UUID, constants: Constants) -> _Rewritten:
    check_depth(tree, source)
    check_allowed(tree, source)
    check_bounds(tree, constants, source)
    name_counts(tree)
    names = output_names(tree)
    resolution = resolve(tree, source)
    fold_literals(tree, resolution)
    narrow_scans(resolution, constants)
    Comparisons(source, resolution, constants, organization).rewrite(tree)
    read_attributes(tree, resolution)
    read_numbers(tree, resolution.drafts)
    keep_times_exact(tree, resolution)
    fix_now(tree, constants)
    named = {id(draft): set(draft.columns) for draft in resolution.drafts}
    take_columns(tree, resolution)
    return _Rewritten(resolution, names, named)
