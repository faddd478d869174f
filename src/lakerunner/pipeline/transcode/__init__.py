"""Input formats that are not on the hot path, each written anew as an OTLP export request in protobuf.

Nothing is dropped: what has no place of its own becomes an attribute, and what cannot be parsed makes the whole object
Corrupt. `formats.py` is the table of them.
"""
