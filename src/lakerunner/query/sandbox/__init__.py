"""Child processes that run users' SQL: confined, of one organization each, and ended when a limit is reached.

docs/formats/isolation.md says what runs where. Only the modules `child`, `instance` and what they import load DuckDB,
in the child; the others are the server's side and never do.
"""
