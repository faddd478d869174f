"""What `lakerunner fsck` looks at: one module for each invariant of the design, each reads only."""
