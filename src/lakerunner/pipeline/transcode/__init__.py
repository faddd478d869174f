"""Input formats that are not on the hot path, each rewritten as an OTLP export request in protobuf.

Nothing is dropped silently: what has no field becomes an attribute, and a line that cannot be read is rejected with its
place and reason (`results.py`). A damaged file that is not made of lines is Corrupt as a whole. `formats.py` is the
table of formats.
"""
