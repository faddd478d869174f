"""Backups of a lake, and lakes made of them: docs/guides/backup.md. Entry points are take.py and restore.py."""
