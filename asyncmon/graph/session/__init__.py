"""The raw session of a graph: run, peek, snapshot, load."""
