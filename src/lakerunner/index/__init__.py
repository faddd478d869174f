"""All of PostgreSQL: the schema lrdb, its migrations and its queries."""
