"""What a graph is made of: dtypes, shapes, what is known of tensors, records of ops, nodes."""
