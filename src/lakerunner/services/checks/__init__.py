"""The checks of `lakerunner fsck`: one module for each invariant of the design. They only read."""
