"""Which productions to choose, and in which order: greedily, or by the exact integer program."""
