"""Programs as graphs for NPUs: one graph, one rule table, one writer per file format."""
