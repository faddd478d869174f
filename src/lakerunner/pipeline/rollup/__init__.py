"""Points to windows of rollups, and these to coarser ones. docs/formats/rollups.md says what the rows mean."""
