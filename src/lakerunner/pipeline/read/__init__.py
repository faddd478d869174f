"""One module per input format: bytes to Arrow."""
