"""Prometheus' HTTP API, and its remote write."""
