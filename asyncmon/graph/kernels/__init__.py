"""Numpy in, numpy out: the arithmetic that needs more than one call of numpy. Knows no graph."""
