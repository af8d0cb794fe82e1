"""What this machine does: a quick look at it, and constants of a cluster from what was timed on it."""
