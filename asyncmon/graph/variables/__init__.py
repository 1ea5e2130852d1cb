"""Variables: their nodes, scopes, initial values; the global step."""
