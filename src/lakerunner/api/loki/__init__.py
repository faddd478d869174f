"""Loki's push API."""
