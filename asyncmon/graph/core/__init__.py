"""What a graph is made of: dtypes, shapes, records of ops, nodes, building them, gradients."""
