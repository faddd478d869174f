"""`logql('...')` in FROM: the lines of a LogQL query as a table.

Comes in: a call with the text of a log query. Goes out: a leaf with the operator of log queries, and the relation that
the coordinator reads in its place. What always holds: workers run the log query alone; conditions, joins, groups and
order of the SQL around it run in the coordinator, except for the bounds of `timestamp`, which bound the leaf. A row
that was delivered twice is one line.
"""

from __future__ import annotations

from typing import Protocol

from sqlglot import exp

from lakerunner.lakeql.dialect import DIALECT
from lakerunner.lakeql.scope import Draft
from lakerunner.lakeql.source import QueryText
from lakerunner.lakeql.tables import ColumnKind, Table, TableColumn
from lakerunner.model.errors import UserError
from lakerunner.model.signal import LOGS
from lakerunner.plan.plan import Leaf
from lakerunner.plan.scan import Scan

LOGQL = "logql"
_MAP = "MAP(VARCHAR, VARCHAR)"
_MAPS = ("stream", "metadata", "parsed")
LOG_LINES = Table(
    LOGS,
    "lines of a LogQL query",
    (
        TableColumn("timestamp", "TIMESTAMP_NS", "when it happened", ColumnKind.TIME),
        TableColumn("line", "VARCHAR", "the line that the query returns"),
        TableColumn("stream", _MAP, "labels of the stream"),
        TableColumn("metadata", _MAP, "structured metadata"),
        TableColumn("parsed", _MAP, "labels that stages of the query made"),
    ),
)


class LogLeaf(Protocol):
    """Compiles log queries. query/ implements it with logql/, of which this package knows nothing."""

    def __call__(self, query: str, scan: Scan) -> Leaf:
        """Return the leaf of a log query over the relation and the time of the scan; its rows are those of the operator
        log_lines. Raise UserError if the query is invalid."""


def read_log_query(call: exp.Anonymous, source: QueryText) -> str:
    """Return the argument of the call."""
    if len(call.expressions) != 1 or not call.expressions[0].is_string:
        raise source.error("logql takes one text, a LogQL log query: logql('{service_name=\"cart\"} | json')", call)
    return str(call.expressions[0].name)


def log_leaf(draft: Draft, compile_leaf: LogLeaf | None) -> Leaf:
    """Return the leaf of a draft. An error has the position of the call in the SQL, and names its place in LogQL."""
    if compile_leaf is None:
        raise UserError("logql(...) is not available here", draft.position)
    try:
        return compile_leaf(draft.log_query, draft.scan())
    except UserError as error:
        raise UserError(f"logql: {error.message}", draft.position) from None


def read_lines(tree: exp.Query, draft: Draft) -> None:
    """Put the lines that workers give in the place of the call."""
    maps = ", ".join(f"CAST(CAST({name} AS JSON) AS {_MAP}) AS {name}" for name in _MAPS)
    sql = (
        f'SELECT make_timestamp_ns("timestamp") AS "timestamp", line, {maps} FROM "{draft.relation}" '
        "QUALIFY delivery IS NULL OR "
        "row_number() OVER (PARTITION BY delivery, delivery_row ORDER BY arrived, row_number) = 1"
    )
    (lines,) = DIALECT.parse(sql)
    for table in list(tree.find_all(exp.Table)):
        if table.name == draft.relation:
            table.replace(exp.Subquery(this=lines, alias=table.args["alias"]))
            return
