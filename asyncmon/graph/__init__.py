"""The embedded engine: a numpy dataflow graph with TF1's names."""
