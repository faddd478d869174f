"""Evaluate an expression, and cut it into what workers do and what is done with their results."""
