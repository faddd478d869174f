"""Files that users drop -> the records they become: tests/golden/inputs/NAME and NAME.records.

A new case is two files; `make golden` writes the second one, to be read before it is committed. Each line of it is a
record in the order of the file, or a reject or note. All objects were last modified at MODIFIED.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lakerunner.pipeline.transcode.columns import GUESSED
from lakerunner.pipeline.transcode.formats import TRANSCODERS
from lakerunner.pipeline.unpack import unpack
from pipeline.transcode_oracle import REQUESTS

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "inputs"
INPUTS = sorted(path for path in FOLDER.iterdir() if path.suffix != ".records")
MODIFIED = 1_794_920_400 * 10**9  # 2026-11-17T13:00:00Z


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: path.name)
def test_golden_records(path: Path) -> None:
    name, content = unpack(path.name, memoryview(path.read_bytes()), 1 << 20)
    made = TRANSCODERS[name]("logs", content, GUESSED.near(MODIFIED))
    found = [json.dumps(shown, ensure_ascii=False) for shown in (*_records(made.data), *_findings(made.findings))]
    target = path.with_name(f"{path.name}.records")
    if os.environ.get("GOLDEN") == "rewrite":
        target.write_text("\n".join(found) + "\n")
    assert found == target.read_text().splitlines()


def _records(data: bytes) -> list[dict[str, Any]]:
    return [
        _shown(record, resource_logs.resource.attributes)
        for resource_logs in REQUESTS["logs"].FromString(data).resource_logs
        for scope_logs in resource_logs.scope_logs
        for record in scope_logs.log_records
    ]


def _shown(record: Any, resource: Any) -> dict[str, Any]:
    shown = {
        "time": _time(record.time_unix_nano),
        "severity": [record.severity_text, record.severity_number] if record.severity_text else None,
        "body": _value(record.body),
        "trace_id": record.trace_id.hex(),
        "resource": {pair.key: _value(pair.value) for pair in resource},
        "attributes": {pair.key: _value(pair.value) for pair in record.attributes},
    }
    return {name: value for name, value in shown.items() if value}


def _time(ns: int) -> str | None:
    seconds, nanos = divmod(ns, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{nanos:09}Z" if ns else None


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    found = getattr(value, kind)
    if kind == "kvlist_value":
        return {pair.key: _value(pair.value) for pair in found.values}
    if kind == "array_value":
        return [_value(item) for item in found.values]
    return found.hex() if kind == "bytes_value" else found


def _findings(findings: Any) -> list[dict[str, Any]]:
    rejects = [{"reject": one.reason, "line": one.line, "offset": one.offset} for one in findings.rejects.first]
    return [*rejects, *({"note": one.kind, "count": one.count, "line": one.line} for one in findings.notes)]
