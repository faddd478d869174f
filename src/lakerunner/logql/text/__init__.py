"""LogQL as text: from text to a tree (parse.py), and from a tree to text (printer.py, pretty.py)."""
