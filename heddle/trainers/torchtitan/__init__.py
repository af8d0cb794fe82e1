"""torchtitan: the TOML files of its releases 0.1 and 0.2."""
