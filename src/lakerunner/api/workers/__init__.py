"""How query-api finds query workers and talks to them."""
