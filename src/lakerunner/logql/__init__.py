"""LogQL: text to a tree (parse.py), the stages of a pipeline over lines (stages/), and the tree to a plan."""
