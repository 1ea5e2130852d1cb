"""How a graph is made: values become tensors, nodes are added, gradients are derived."""
