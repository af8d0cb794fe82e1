"""Train, and use what was trained."""
