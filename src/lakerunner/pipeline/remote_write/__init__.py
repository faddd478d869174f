"""Prometheus remote-write 1.0 and 2.0: bytes to rows, by the same code. `reader.py` is the way in."""
