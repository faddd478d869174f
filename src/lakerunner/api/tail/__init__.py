"""Live tailing: new lines of a log query over a WebSocket."""
