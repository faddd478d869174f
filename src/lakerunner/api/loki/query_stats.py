"""The `stats` object of Loki's answers, filled from our account of a query.

Every member that Loki has is there, because clients read them without asking; what has no meaning in the lake is 0.
"""

from __future__ import annotations

from typing import Any

from lakerunner.query.contract.account import Account

_CACHES = (
    "chunk",
    "index",
    "statsResult",
    "seriesResult",
    "labelResult",
    "volumeResult",
    "instantMetricResult",
    "result",
)


def query_stats(account: Account, seconds: float, entries: int) -> dict[str, Any]:
    """Return the statistics of an answer: `entries` are those that it returns, `seconds` what it took in all. Bytes are
    those of the columns that were read, as they are stored."""
    size = account.bytes_fetched + account.bytes_cached
    lines = max(account.rows, entries)
    store = _store(account, size)
    return {
        "summary": {
            "bytesProcessedPerSecond": _per_second(size, seconds),
            "linesProcessedPerSecond": _per_second(lines, seconds),
            "totalBytesProcessed": size,
            "totalLinesProcessed": lines,
            "execTime": seconds,
            "queueTime": 0,
            "subqueries": 0,
            "totalEntriesReturned": entries,
            "splits": 0,
            "shards": sum(account.workers.values()),
            "totalPostFilterLines": entries,
            "totalStructuredMetadataBytesProcessed": 0,
        },
        "querier": {"store": store},
        "ingester": {
            "totalReached": 0,
            "totalChunksMatched": 0,
            "totalBatches": 0,
            "totalLinesSent": 0,
            "store": _store(Account(), 0),
        },
        "cache": {name: _cache(hit=account.from_cache and name == "result") for name in _CACHES},
        "index": {
            "totalChunks": account.considered,
            "postFilterChunks": account.read,
            "shardsDuration": 0,
            "usedBloomFilters": False,
        },
    }


def _per_second(amount: int, seconds: float) -> int:
    return int(amount / seconds) if seconds > 0 else 0


def _store(account: Account, size: int) -> dict[str, Any]:
    return {
        "totalChunksRef": account.considered,
        "totalChunksDownloaded": account.read,
        "chunksDownloadTime": int(account.seconds.get("fetch", 0.0) * 1e9),
        "queryReferencedStructuredMetadata": False,
        "chunk": {
            "headChunkBytes": 0,
            "headChunkLines": 0,
            "headChunkStructuredMetadataBytes": 0,
            "decompressedBytes": 0,
            "decompressedLines": 0,
            "decompressedStructuredMetadataBytes": 0,
            "compressedBytes": size,
            "totalDuplicates": 0,
            "postFilterLines": 0,
        },
        "chunkRefsFetchTime": 0,
        "congestionControlLatency": 0,
        "pipelineWrapperFilteredLines": 0,
    }


def _cache(*, hit: bool) -> dict[str, int]:
    return {
        "entriesFound": int(hit),
        "entriesRequested": int(hit),
        "entriesStored": 0,
        "bytesReceived": 0,
        "bytesSent": 0,
        "requests": int(hit),
        "downloadTime": 0,
        "queryLengthServed": 0,
    }
