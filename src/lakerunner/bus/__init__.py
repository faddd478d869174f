"""The bus: topics of frozen messages that carry paths and work, never telemetry."""
