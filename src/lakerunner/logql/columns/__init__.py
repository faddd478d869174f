"""LogQL over batches of lines as columns, for the stages that can be computed so."""
