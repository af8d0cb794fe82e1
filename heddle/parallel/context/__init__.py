"""Context parallelism: several ranks share the tokens of each sample, and exchange keys and values for attention."""
