"""Nodes, shapes and the graph: how values become tensors, nodes are added, gradients derived."""
