"""Text, tokens and weights, in and out."""
