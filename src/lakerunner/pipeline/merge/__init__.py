"""Merge several segments into one: rows in order, side files, index row."""
