"""Loki's HTTP API: LogQL queries, and lists of streams and labels."""
