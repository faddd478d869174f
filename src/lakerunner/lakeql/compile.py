"""Compile SQL text to a plan: parse, fill in parameters, check, resolve, rewrite, split.

Comes in: the text, its parameters, the organization, and the one `now` of the query. Goes out: a plan, or an error that
says what is wrong and where. The plan holds no organization: a scan can only be given the caller's own segments.
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
from lakerunner.lakeql.comparisons import Comparisons, fold_literals
from lakerunner.lakeql.constants import Constants
from lakerunner.lakeql.log_table import LogLeaf
from lakerunner.lakeql.prune import narrow_scans
from lakerunner.lakeql.resolve import Resolution, resolve
from lakerunner.lakeql.rewrite import (
    collect_columns,
    fix_now,
    keep_times_exact,
    name_counts,
    output_names,
    read_attributes,
    read_numbers,
)
from lakerunner.lakeql.source import MAX_LENGTH, QueryText, fill_parameters
from lakerunner.lakeql.split import Names, Splitter
from lakerunner.model.errors import UserError
from lakerunner.plan.plan import Plan
from lakerunner.plan.scan import Types


def compile_sql(
    text: str,
    organization: UUID,
    now_ns: int,
    *,
    parameters: Mapping[str, Any] | None = None,
    types: Types | None = None,
    logs: LogLeaf | None = None,
    max_length: int = MAX_LENGTH,
) -> Plan:
    """Compile one SELECT. `parameters` are the values of $1, $name, ... by what follows the $. Raise UserError with a
    position if the text is wrong or uses what is not available, NotAllowed if it names another organization, TooLarge
    beyond max_length characters. Without `types` workers group nothing, without `logs` logql(...) is refused."""
    source = QueryText(text)
    with user_errors():
        query = rewrite_query(source, organization, Constants(now_ns), parameters or {}, max_length)
        return Splitter(query.resolution, query.names, query.named, types, logs).plan(query.tree)


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn what Python or sqlglot raises on a query that is too deep or unsupported into UserError."""
    try:
        yield
    except RecursionError:
        raise UserError("the query is nested too deeply: give inner parts a name with WITH") from None
    except UnsupportedError as error:
        raise UserError(f"not available: {error}") from None


@dataclass(frozen=True)
class RewrittenQuery:
    """A tree that means the same over its scans, before it is split (lakeql/split.py). `named` are the columns of each
    table, by the id of its draft, that are needed though no column node names them."""

    tree: exp.Query
    resolution: Resolution
    names: Names
    named: dict[int, set[str]]


def rewrite_query(
    source: QueryText, organization: UUID, constants: Constants, parameters: Mapping[str, Any], max_length: int
) -> RewrittenQuery:
    """Parse, check, resolve and rewrite a query. The order matters: literals are folded before scans are narrowed by
    them, and comparisons are rewritten before attributes become columns of their scans."""
    tree = source.parse(max_length)
    fill_parameters(tree, parameters, source)
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
    collect_columns(tree, resolution)
    return RewrittenQuery(tree, resolution, names, named)
