"""What a worker reads of segments: pruned, fetched into its cache, checked, and shown to DuckDB as relations."""
