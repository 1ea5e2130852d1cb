"""Shared by kernels: array types, thread team, BLAS threads, image windows. Knows no graph."""
