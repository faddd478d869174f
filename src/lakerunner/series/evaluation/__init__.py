"""Evaluate an expression, and split it into what workers do and what is done with their results."""
