"""Go templates: the language of text/template with the functions that log queries and alerts use."""
