"""Modules of the user's own: read from a Python file, looked through once, and cut into chunks as a plan says."""
