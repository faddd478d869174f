"""SQL text to plan: read, checked, resolved, rewritten.

Comes in: the text, whose it is, and the one `now` of the query. Goes out: a SqlPlan, or an error that says what is
wrong and where. The plan holds no organization: the caller's own segments are all that a scan can be given.
"""

from __future__ import annotations

from uuid import UUID

from sqlglot.errors import UnsupportedError

from lakerunner.lakeql.allowed import check_allowed
from lakerunner.lakeql.bounds import check_bounds
from lakerunner.lakeql.compare import Comparisons
from lakerunner.lakeql.constants import Constants
from lakerunner.lakeql.prune import narrow_scans
from lakerunner.lakeql.resolve import resolve
from lakerunner.lakeql.rewrite import (
    fix_now,
    keep_times_exact,
    output_names,
    read_attributes,
    take_columns,
)
from lakerunner.lakeql.source import MAX_LENGTH, Source
from lakerunner.lakeql.split import Splitter
from lakerunner.model.errors import UserError
from lakerunner.plan.sql import SqlPlan
from lakerunner.plan.types import Types


def compile_sql(
    text: str, organization: UUID, now_ns: int, *, types: Types | None = None, max_length: int = MAX_LENGTH
) -> SqlPlan:
    """The plan of one SELECT. UserError with a position where the text is wrong or asks for what is not available,
    NotAllowed where it asks for another organization, TooLarge beyond max_length characters. Without `types`
    workers group nothing."""
    try:
        return _compiled(Source(text), organization, Constants(now_ns), types, max_length)
    except RecursionError:
        raise UserError("the query is nested too deeply: give inner parts a name with WITH") from None
    except UnsupportedError as error:
        raise UserError(f"not available: {error}") from None


def _compiled(
    source: Source, organization: UUID, constants: Constants, types: Types | None, max_length: int
) -> SqlPlan:
    tree = source.parse(max_length)
    check_allowed(tree, source)
    check_bounds(tree, constants, source)
    names = output_names(tree)
    resolution = resolve(tree, source)
    narrow_scans(resolution, constants)
    Comparisons(source, resolution, constants, organization).rewrite(tree)
    read_attributes(tree, resolution)
    keep_times_exact(tree, resolution)
    fix_now(tree, constants)
    named = {id(draft): set(draft.columns) for draft in resolution.drafts}
    take_columns(tree, resolution)
    return Splitter(resolution, names, named, types).plan(tree)
