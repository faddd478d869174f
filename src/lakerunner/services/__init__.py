"""One short module per process: take, do, commit."""
