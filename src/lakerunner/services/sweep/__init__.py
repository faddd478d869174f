"""What the sweeper takes, a module for each kind: each finds what is due, for a dry run too, and takes it."""
