"""Heddle plans, simulates, trains and explains the parallel training of large transformer models."""

__version__ = "0.1.0"
