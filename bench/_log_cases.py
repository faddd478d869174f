"""The questions of bench/logql.py: each in LogQL, in SQL for DuckDB, and in LogsQL for VictoriaLogs.

All three have the same right answer: LogQL and LIKE look for a text, LogsQL for words or for what words begin with, and
in these lines (_log_lines.py) both find the same. Lists of streams have endpoints of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from _lake import HOUR_NS, HOURS, OPENING_NS

END_NS = OPENING_NS + HOURS * HOUR_NS
NOON_NS = OPENING_NS + 12 * HOUR_NS
ALL = '{service_name=~".+"}'
ABSENT = "zqxjkvbwp"
LIMIT = 100  # of lines in an answer
# VictoriaLogs' lists of streams, by Loki's path.
_LISTS = {
    "labels": ("stream_field_names", {}),
    "label/service_name/values": ("stream_field_values", {"field": "service.name"}),
    "series": ("streams", {}),
    "index/volume": ("hits", {"field": "service.name", "step": "1d"}),
}


@dataclass(frozen=True)
class Case:
    """A request. `sql` is the same question for DuckDB, with `{logs}` for the rows and `{time}` for the range; rows of
    its answer are texts and a number. `logsql` is the same for VictoriaLogs, where a count is called n. `lines`: the
    request must read this many lines per CPU second."""

    name: str
    query: str
    baseline: str = "scan"
    target: float = 0
    sql: str = ""
    logsql: str = "*"
    hours: int = HOURS
    step: int = 0
    path: str = ""
    is_sql_too: bool = False
    lines: str = ""

    @property
    def end_ns(self) -> int:
        return END_NS if self.hours == HOURS else NOON_NS

    @property
    def start_ns(self) -> int:
        return self.end_ns - self.hours * HOUR_NS

    @property
    def is_log_query(self) -> bool:
        return self.query.startswith("{") and not self.path

    def loki_request(self) -> tuple[str, dict[str, str]]:
        """Return path and parameters for Loki's API."""
        path, parameters = self._loki_endpoint()
        return f"/loki/api/v1/{path}", parameters

    def _loki_endpoint(self) -> tuple[str, dict[str, str]]:
        start, end = str(self.start_ns), str(self.end_ns)
        if self.path:
            selector = {"match[]" if self.path == "series" else "query": self.query} if self.query else {}
            return self.path, {"start": start, "end": end} | selector
        if self.is_log_query:
            return "query_range", {"query": self.query, "start": start, "end": end, "limit": str(LIMIT)}
        if self.step:  # the window of the first step begins at the start
            start = str(self.start_ns + self.step * 1_000_000_000)
            return "query_range", {"query": self.query, "start": start, "end": end, "step": str(self.step)}
        return "query", {"query": self.query, "time": end}

    def logsql_request(self) -> tuple[str, dict[str, str]]:
        """Return path and parameters for VictoriaLogs' API."""
        endpoint, more = _LISTS.get(self.path, ("query", {"limit": str(LIMIT)} if self.is_log_query else {}))
        # Both ends are inclusive, and an end at a whole second would include that second.
        time = {"start": str(self.start_ns + 1), "end": str(self.end_ns - 1)}
        return f"/select/logsql/{endpoint}", {"query": self.logsql} | time | more

    def statement(self, logs: str) -> str:
        first, last = (
            datetime.fromtimestamp(at / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S") for at in (self.start_ns, self.end_ns)
        )
        return self.sql.format(logs=logs, time=f"timestamp > '{first}' AND timestamp <= '{last}'")


def cases(needle: str, trace_id: str) -> Iterator[Case]:
    """Yield searches, counts and lists, then those of `text_bench`."""
    for name, text in (("trace id in the line", needle), ("absent word", ABSENT)):
        yield Case(f"needle: {name}", f'{ALL} |= "{text}"', target=1 / 25, sql=_has(text), logsql=f'"{text}"')
    metadata = f"SELECT count(*) FROM {{logs}} WHERE {{time}} AND lower(hex(trace_id)) = '{trace_id}'"
    yield Case(
        "needle: trace id in metadata",
        f'{ALL} | trace_id="{trace_id}"',
        target=1 / 25,
        sql=metadata,
        logsql=f'trace_id:="{trace_id}"',
    )
    yield Case(
        "service + text, count",
        'sum(count_over_time({service_name="checkout"} |= "pool exhausted" [24h]))',
        "unsorted",
        1 / 20,
        f"{_has('pool exhausted')} AND service_name = 'checkout'",
        '{service.name="checkout"} "pool exhausted" | stats count() n',
    )
    yield Case(
        "text in all services, count",
        f'sum(count_over_time({ALL} |= "declined" [24h]))',
        sql=_has("declined"),
        logsql="declined | stats count() n",
    )
    yield Case(
        "level per minute, 24 h",
        f"sum by (detected_level) (count_over_time({ALL}[1m]))",
        "DuckDB",
        1.5,
        _grouped(60, "lower(severity)"),
        "* | stats by (_time:1m, severity) count() n",
        step=60,
    )
    for name, label, field, value in (
        ("service", "service_name", "service.name", "payment"),
        ("namespace", "k8s_namespace_name", "k8s.namespace.name", "ingress"),
    ):
        logsql = f'{{{field}="{value}"}}'
        yield Case(f"last 100 lines of a {name}", f'{{{label}="{value}"}}', target=1 / 20, logsql=logsql)
    json_fields = ("message ->> '$.status'", "message ->> '$.path'")
    logfmt_fields = (
        r"regexp_extract(message, ' status=(\d+)', 1)",
        r"regexp_extract(message, ' path=(\S+)', 1)",
    )
    for service, parser, (status, path) in (("edge", "json", json_fields), ("gateway", "logfmt", logfmt_fields)):
        yield Case(
            f"{parser}: status by path, 1 h",
            f'sum by (path) (count_over_time({{service_name="{service}"}} | {parser} | status >= 500 [1h]))',
            "DuckDB",
            sql=f"SELECT {path}, count(*) FROM {{logs}} WHERE {{time}} AND service_name = '{service}' "
            f"AND CAST({status} AS INTEGER) >= 500 GROUP BY ALL",
            logsql=f'{{service.name="{service}"}} | unpack_{parser} fields (path, status) '
            "| filter status:>=500 | stats by (path) count() n",
            hours=1,
            lines=service,
        )
    for path, query in (("labels", ""), ("label/service_name/values", ""), ("series", ALL), ("index/volume", ALL)):
        yield Case(f"{path}, 24 h", query, target=1 / 50, path=path)
    yield from text_bench(needle)


def text_bench(needle: str) -> Iterator[Case]:
    def case(number: int, words: str, query: str, sql: str, logsql: str, target: float = 1.2) -> Case:
        baseline = "scan" if target < 1 else "DuckDB"
        return Case(f"Q{number}: {words}", query, baseline, target, sql, f"{logsql} n", is_sql_too=True)

    def counted(filters: str, by: str = "", selector: str = ALL) -> str:
        return f"sum{by}(count_over_time({selector} {filters} [24h]))"

    rare, checkout = "pool exhausted", '{service_name="checkout"}'
    both = f"{_has('order')} AND message LIKE '%Osaka%'"
    either = "SELECT count(*) FROM {logs} WHERE {time} AND (message LIKE '%declined%' OR message LIKE '%refused%')"
    with_get = f"{_has(needle)} AND message LIKE '%GET%'"
    of_checkout = "AND service_name = 'checkout'"
    of_errors = f"{_has('request')} AND severity = 'ERROR'"
    by_service = "SELECT service_name, count(*) FROM {logs} WHERE {time} AND message LIKE '%order%' GROUP BY ALL"
    tokens, total = '|= "order"', "| stats count()"
    yield case(1, "rare token", counted(f'|= "{needle}"'), _has(needle), f'"{needle}" {total}', 1 / 20)
    and_get = counted(f'|= "{needle}" |= "GET"')
    yield case(2, "rare tokens, AND", and_get, with_get, f'"{needle}" GET {total}', 1 / 20)
    yield case(3, "tokens, AND", counted(f'{tokens} |= "Osaka"'), both, f'"order"* Osaka {total}')
    yield case(4, "tokens, OR", counted('|= "declined" or "refused"'), either, f"(declined or refused) {total}")
    yield case(
        5,
        "token of a service",
        counted(tokens, selector=checkout),
        f"{_has('order')} {of_checkout}",
        f'{{service.name="checkout"}} "order"* {total}',
    )
    with_level = counted('|= "request" | detected_level="error"')
    yield case(6, "token, severity", with_level, of_errors, f"severity:=ERROR request {total}")
    yield case(
        7,
        "token by service",
        counted(tokens, " by (service_name) "),
        by_service,
        '"order"* | stats by (service.name) count()',
    )
    yield case(
        8,
        "rare text of a service",
        counted(f'|= "{rare}"', selector=checkout),
        f"{_has(rare)} {of_checkout}",
        f'{{service.name="checkout"}} "{rare}" {total}',
        1 / 20,
    )
    yield Case(
        "Q9: token by severity, hourly",
        f"sum by (detected_level) (count_over_time({ALL} {tokens} [1h]))",
        "DuckDB",
        1.2,
        _grouped(3600, "lower(severity)", more="AND message LIKE '%order%'"),
        '"order"* | stats by (_time:1h, severity) count() n',
        step=3600,
        is_sql_too=True,
    )


def _has(text: str) -> str:
    return f"SELECT count(*) FROM {{logs}} WHERE {{time}} AND message LIKE '%{text}%'"


def _grouped(seconds: int, *labels: str, more: str = "") -> str:
    """Count by labels and by the start of a window. A window has its end, not its start, as in LogQL."""
    start = f"(epoch_ns(timestamp) - 1) // {seconds * 1_000_000_000} * {seconds}"
    return f"SELECT {', '.join((*labels, start))}, count(*) FROM {{logs}} WHERE {{time}} {more} GROUP BY ALL"


# A peer that has all lines agrees on this.
LINES_BY_HOUR = Case(
    "lines by hour",
    f"sum(count_over_time({ALL}[1h]))",
    sql=_grouped(3600),
    logsql="* | stats by (_time:1h) count() n",
    step=3600,
)
