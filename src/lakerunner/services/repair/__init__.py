"""The steps of `lakerunner repair`, a module each."""
