"""The chores of the sweeper. Each finds what is due, also for a dry run, and deletes it."""
