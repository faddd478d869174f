"""What `lakerunner repair` does: a module for each step."""
