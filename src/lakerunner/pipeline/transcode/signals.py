"""The three signals' records, by name."""

from __future__ import annotations

from lakerunner.pipeline.transcode.logs import Logs
from lakerunner.pipeline.transcode.metrics import Metrics
from lakerunner.pipeline.transcode.records import Records
from lakerunner.pipeline.transcode.traces import Traces

RECORDS: dict[str, type[Records]] = {kind.signal: kind for kind in (Logs, Metrics, Traces)}
