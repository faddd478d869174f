"""Native and classic histograms as samples of series."""
