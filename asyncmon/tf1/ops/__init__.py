"""TF1's less common ops, which no other part of the package uses."""
