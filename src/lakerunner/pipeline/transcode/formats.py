"""The formats that are transcoded: one line each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from lakerunner.pipeline.transcode.columns import Columns
from lakerunner.pipeline.transcode.csv import from_csv
from lakerunner.pipeline.transcode.json_lines import from_json
from lakerunner.pipeline.transcode.loki import from_loki, json_streams, protobuf_streams
from lakerunner.pipeline.transcode.parquet_rows import from_parquet
from lakerunner.pipeline.transcode.plain_text import from_text
from lakerunner.pipeline.transcode.results import Transcoded

# From the signal, an object's unpacked bytes and its columns in a mapping file to an export request and findings.
# Corrupt, with the place, if the object cannot be read at all.
Transcoder = Callable[[str, memoryview, Columns], Transcoded]

TRANSCODERS: dict[str, Transcoder] = {
    "otlp_json": from_json,  # each line shows whether it is an OTLP request or a record
    "jsonl": from_json,
    "csv": from_csv,
    "tsv": partial(from_csv, delimiter="\t"),
    "parquet": from_parquet,
    "text": from_text,
    "lokipb": partial(from_loki, protobuf_streams),
    "lokijson": partial(from_loki, json_streams),
}
