"""Answers in the formats that clients request."""
