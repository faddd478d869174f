"""What senders push: telemetry as OTLP, Prometheus remote-write or Loki, and notifications of new raw objects."""
