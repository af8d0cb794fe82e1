"""Which choices of a plan go together."""
