"""What a stream of log lines is: its labels, the metadata of a line, and its level (docs/formats/streams.md)."""
