"""What a person at the command line sees: answers of a running lake as tables and plots, a prompt, progress."""
