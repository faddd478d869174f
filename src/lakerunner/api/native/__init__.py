"""The native API, as Lakerunner's Grafana plugin calls it."""
