"""The order of work of a pipeline, searched for what its stages really take and may hold."""
