"""What the rooms of the query side share: the account of an answer, its limits and errors."""
