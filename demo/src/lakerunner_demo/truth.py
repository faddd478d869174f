"""The right answers: what a store that lost nothing and doubled nothing must count for a time range."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from lakerunner.model.time import TimeRange
from lakerunner_demo.lines import Severity
from lakerunner_demo.stream import Traffic, chunks


@dataclass(frozen=True)
class Truth:
    """Log records count by their time, spans by their end. What does not occur has no entry."""

    logs: int
    logs_by_service: Mapping[str, int]
    logs_by_severity: Mapping[tuple[str, str], int]  # (service, severity text)
    spans_by_service: Mapping[str, int]
    incidents: tuple[TimeRange, ...]  # those that overlap the range, clipped to it
    incident_errors: Mapping[str, int]  # ERROR log records per service inside the incidents


def tell_truth(traffic: Traffic, time: TimeRange) -> Truth:
    incidents = tuple(
        TimeRange(max(time.start_ns, found.begin_ns), min(time.end_ns, found.end_ns))
        for found in traffic.schedule.incidents(time)
    )
    logs: Counter[tuple[str, str]] = Counter()
    spans: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    for chunk in chunks(traffic, time):
        for rows in chunk.logs():
            service, severity = rows.site.service, rows.site.line.severity
            logs[service, severity.name] += len(rows.source)
            if severity == Severity.ERROR:
                errors[service] += sum(len(rows.within(incident).source) for incident in incidents)
        for span in chunk.spans():
            spans[span.played.node.service] += len(span.source)
    by_service: Counter[str] = Counter()
    for (service, _), count in logs.items():
        by_service[service] += count
    return Truth(logs.total(), dict(+by_service), dict(+logs), dict(+spans), incidents, dict(+errors))
