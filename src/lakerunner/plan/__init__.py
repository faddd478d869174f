"""The one query plan that every language compiles into. No I/O."""
