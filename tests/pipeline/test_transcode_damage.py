"""Whatever the bytes: a transcoder gives a request that protobuf reads, or Corrupt. Nothing else ever comes out."""

from __future__ import annotations

import io
import json
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.model.errors import Corrupt
from lakerunner.model.protobuf import varint
from lakerunner.pipeline.transcode.columns import GUESSED
from lakerunner.pipeline.transcode.formats import TRANSCODERS
from pipeline.transcode_oracle import REQUESTS

SPAN = {
    "time": 1700000000.5,
    "start": "2023-11-14T22:13:20Z",
    "duration": "5ms",
    "name": "n",
    "value": 5,
    "type": "sum",
    "labels": {"a": [1, {"b": None}]},
    "events": [{"name": "e", "time": 1}],
    "status": {"code": 1},
    "trace_id": "01" * 16,
    "level": "info",
}
OTLP = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"timeUnixNano": "5", "body": {"stringValue": "x"}}]}]}]}


def framed(message: bytes) -> bytes:
    return varint(len(message)) + message


def parquet() -> bytes:
    out = io.BytesIO()
    record = {**SPAN, "labels": {"a": [1, 2], "b": {"c": b"d"}}}
    pq.write_table(pa.Table.from_pylist([record, record]), out)
    return out.getvalue()


SAMPLES = {
    "jsonl": json.dumps(SPAN).encode() + b"\n" + json.dumps(SPAN).encode(),
    "otlp_json": json.dumps(OTLP).encode(),
    "csv": b'time,name,value,labels\n1,n,5,"{""a"": 1}"\n2,"x\ny",6,\n',
    "tsv": b'time\tname\tvalue\n1\tn\t5\n2\t"x\ny"\t6\n',
    "parquet": parquet(),
    "text": b'2026-11-17T12:00:00Z INFO a\n\tat b\nlevel=info ts=5 msg="c"\n{"time":5}\n<34>1 - h a 1 m [x y="z"] e\n',
    "lokipb": framed(
        b"\x0a\x1c\x0a\x09" + b'{a="b\\n"}' + b"\x12\x0f\x0a\x02\x08\x05\x12\x01x\x1a\x06\x0a\x01k\x12\x01v"
    ),
    "lokijson": framed(b'{"streams":[{"stream":{"a":"b"},"values":[["5","x",{"k":"v"}]]}]}'),
}


def test_there_is_a_sample_of_every_format() -> None:
    assert SAMPLES.keys() == TRANSCODERS.keys()
    for name, data in SAMPLES.items():
        REQUESTS["logs"].FromString(TRANSCODERS[name]("logs", memoryview(data), GUESSED).data)


@pytest.mark.parametrize("name", sorted(SAMPLES))
@settings(max_examples=120, deadline=None)
@given(
    signal=st.sampled_from(sorted(REQUESTS)),
    cuts=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 4), st.binary(max_size=4)), max_size=4),
)
def test_damage_is_corrupt_or_harmless(name: str, signal: str, cuts: list[tuple[float, int, bytes]]) -> None:
    data = SAMPLES[name]
    for place, gone, new in cuts:
        at = int(place * len(data))
        data = data[:at] + new + data[at + gone :]
    with suppress(Corrupt):
        REQUESTS[signal].FromString(TRANSCODERS[name](signal, memoryview(data), GUESSED).data)
