"""OTLP over HTTP and gRPC."""
