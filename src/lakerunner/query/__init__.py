"""Plans to answers, on DuckDB. The only importer of DuckDB."""
