"""A real Loki of `make peers` as one process, with its default limits lifted: what is pushed is queried at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from servers.peers import running_peer
from servers.ports import free_port

# Lines of any age are accepted, and read where they are until they become chunks. Answers are not kept, and queries are
# not cut into shards, whose sums of floats would differ.
_CONFIGURATION = """
auth_enabled: false
server:
  http_listen_address: 127.0.0.1
  http_listen_port: {http}
  grpc_listen_address: 127.0.0.1
  grpc_listen_port: {grpc}
  grpc_server_max_recv_msg_size: 268435456
  grpc_server_max_send_msg_size: 268435456
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
querier: {{query_ingesters_within: 0}}
query_range: {{cache_results: false, parallelise_shardable_queries: {shards}}}
limits_config:
  reject_old_samples: false
  ingestion_rate_mb: 1000
  ingestion_burst_size_mb: 1000
  per_stream_rate_limit: 1GB
  per_stream_rate_limit_burst: 1GB
  max_query_series: 100000
  max_query_length: 0
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
