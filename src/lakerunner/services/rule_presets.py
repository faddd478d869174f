"""Ready-made rules that an organization can switch on: a file of rules (rule_file.py), and where it is read.

What always holds: each is a rule that is stored as any other, and can be changed or dropped like one.
"""

from __future__ import annotations

from collections.abc import Iterable

from lakerunner.model.errors import NotFound
from lakerunner.model.metric_rules.metric_rule import MetricRule
from lakerunner.services.rule_file import read_rule_file

PRESETS = """\
rules:
  - name: log-errors
    description: Lines of level error and above, by service and namespace
    signal: logs
    selector: '{service_name=~".+"} | detected_level=~"error|critical|fatal"'
    measure: count
    metric: log_errors
    dimensions: [service_name, service_namespace]

  - name: log-lines
    description: Lines of logs, by service and level
    signal: logs
    selector: '{service_name=~".+"}'
    measure: count
    metric: log_lines
    dimensions: [service_name, detected_level]

  - name: log-bytes
    description: Bytes of log lines, by service and level
    signal: logs
    selector: '{service_name=~".+"}'
    measure: bytes
    metric: log_bytes
    dimensions: [service_name, detected_level]

  - name: span-calls
    description: Spans, by service, operation and kind
    signal: traces
    selector: '{}'
    measure: count
    metric: span_calls
    dimensions: [service_name, name, kind]

  - name: span-errors
    description: Spans whose status is an error, by service, operation and kind
    signal: traces
    selector: '{}'
    measure: errors
    metric: span_errors
    dimensions: [service_name, name, kind]

  - name: span-duration
    description: Duration of spans as a histogram, by service, operation and kind
    signal: traces
    selector: '{}'
    measure: histogram(duration)
    metric: span_duration
    dimensions: [service_name, name, kind]
"""


def presets(names: Iterable[str] = ()) -> list[MetricRule]:
    """Return the ready-made rules with these names, or all if there are none. NotFound names the known ones."""
    known = {rule.name: rule for rule in read_rule_file(PRESETS)}
    for name in (wanted := list(names)):
        if name not in known:
            raise NotFound(f"no ready-made rule is named {name!r}: use {', '.join(known)}")
    return [known[name] for name in wanted or known]
