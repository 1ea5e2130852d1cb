"""Queues: a transactional core, the awaited ops on it, TF1's queue classes."""
