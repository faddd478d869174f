"""Metrics as Prometheus sees them, out of segments: series, samples, and PromQL over them."""
