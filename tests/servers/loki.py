"""A real Loki of `make peers` as one process, with its default limits lifted.

Lines of any age are accepted. Queries of lines older than a few hours read chunks alone: `flush_loki` makes them. What
is flushed is there again after a restart.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from servers.lake import wait_until
from servers.peers import running_peer
from servers.ports import free_port

_FLUSH_SECONDS = 600
_IN_MEMORY = "loki_ingester_memory_chunks"
# Answers are not kept, of lists neither. Queries of tests are not cut into shards, whose sums of floats would differ.
# Without a log of its writes a restart finds each line once: what is not flushed is flushed at the end. Streams have
# no more labels than they were sent with, however fast they come.
_CONFIGURATION = """
auth_enabled: false
server:
  http_listen_address: 127.0.0.1
  http_listen_port: {http}
  grpc_listen_address: 127.0.0.1
  grpc_listen_port: {grpc}
  grpc_server_max_recv_msg_size: 268435456
  grpc_server_max_send_msg_size: 268435456
  http_server_read_timeout: 10m
  http_server_write_timeout: 10m
frontend: {{address: 127.0.0.1}}
common:
  instance_addr: 127.0.0.1
  path_prefix: {data}
  replication_factor: 1
  ring: {{instance_addr: 127.0.0.1, kvstore: {{store: inmemory}}}}
  storage: {{filesystem: {{chunks_directory: {data}/chunks, rules_directory: {data}/rules}}}}
schema_config:
  configs:
    - {{from: 2020-01-01, store: tsdb, object_store: filesystem, schema: v13, index: {{prefix: i_, period: 24h}}}}
ingester: {{wal: {{enabled: false}}}}
query_range:
  cache_results: false
  cache_label_results: false
  cache_series_results: false
  cache_volume_results: false
  parallelise_shardable_queries: {shards}
limits_config:
  reject_old_samples: false
  ingestion_rate_mb: 1000
  ingestion_burst_size_mb: 1000
  per_stream_rate_limit: 1GB
  per_stream_rate_limit_burst: 1GB
  max_global_streams_per_user: 0
  max_label_names_per_series: 100
  shard_streams: {{enabled: false}}
  max_query_series: 100000
  max_query_length: 0
  query_timeout: 10m
  volume_enabled: true
analytics: {{reporting_enabled: false}}
"""


@contextmanager
def running_loki(directory: Path, *, shards: bool) -> Iterator[str]:
    """Yield the URL. `shards`: whether queries are cut into shards, as by default."""
    directory.mkdir(parents=True, exist_ok=True)
    http = free_port()
    file = directory / "loki.yaml"
    file.write_text(
        _CONFIGURATION.format(http=http, grpc=free_port(), data=directory / "data", shards=str(shards).lower())
    )
    url = f"http://127.0.0.1:{http}"
    with running_peer("loki", [f"-config.file={file}"], f"{url}/ready", directory / "log"):
        yield url


def flush_loki(client: httpx.Client) -> None:
    """Return when every line is in a chunk."""

    def flushed() -> bool:
        # A flush also forgets the chunks that earlier ones have written.
        client.post("/flush").raise_for_status()
        metrics = client.get("/metrics").raise_for_status().text.splitlines()
        return any(line.split() == [_IN_MEMORY, "0"] for line in metrics)

    wait_until(flushed, "no chunk in Loki's memory", _FLUSH_SECONDS)
