"""An answer's rows in the formats that clients ask for: one file each, one line each in choose.py."""
