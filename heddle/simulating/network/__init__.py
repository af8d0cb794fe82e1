"""A step over links and devices that differ."""
