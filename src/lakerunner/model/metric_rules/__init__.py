"""Rules that make metrics of logs, spans and other metrics (docs/formats/materialization.md)."""
