"""HTTP, SSE and gRPC. The only async code."""
