"""The ops: of each its record, with kernel, rule and gradient, and its public function."""
