"""Binary operators between numbers and vectors of series."""
