"""Functions of series that several languages have; each language lists those that it has in its own table."""
