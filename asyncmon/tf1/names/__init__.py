"""Advice on names of TF1: the table of its names, hints for those that are not here, and the lookup."""
