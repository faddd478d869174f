"""A believable shop of ten services that emits OpenTelemetry, the same for the same seed."""
