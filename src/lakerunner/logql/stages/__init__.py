"""The stages of a LogQL pipeline over one line, and the samples of metric queries; pipeline.py has their table."""
