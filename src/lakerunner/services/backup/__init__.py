"""Back up a lake and restore it (docs/guides/backup.md). Entry points are take.py and restore.py."""
