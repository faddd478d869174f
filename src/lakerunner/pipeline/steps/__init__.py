"""The steps between reading and writing: frames of rows in, rows or Arrow arrays out."""
