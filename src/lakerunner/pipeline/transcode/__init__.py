"""Input formats that are not on the hot path, each written anew as an OTLP export request in protobuf.

Nothing is dropped in silence: what has no place of its own becomes an attribute, and a line that cannot be read is a
reject with its place and reason (`reading.py`). A damaged file that is not made of lines is Corrupt as a whole.
`formats.py` is the table of formats.
"""
